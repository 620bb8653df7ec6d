// Makes the scripts that complete commands of tessera. Each script finds the verb and the flag before the word, and
// then looks up what may follow, in tables that this file makes. The three scripts follow the same steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/app/completion_table.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {

namespace {

// In single quotes, for bash and zsh.
std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// In single quotes, for fish.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "'";
}

struct FirstWord {
  std::string word, help;
};

// The words that may follow `tessera`. A family of verbs with two words is one word.
std::vector<FirstWord> first_words(const std::vector<Verb>& verbs) {
  std::vector<FirstWord> words;
  for (const Verb& verb : verbs) {
    const std::string word = verb.name.substr(0, verb.name.find(' '));
    if (std::ranges::find(words, word, &FirstWord::word) == words.end()) words.push_back({word, verb.help});
  }
  return words;
}

// The second words of verbs, by their first word.
std::map<std::string, std::vector<FirstWord>> second_words(const std::vector<Verb>& verbs) {
  std::map<std::string, std::vector<FirstWord>> words;
  for (const Verb& verb : verbs) {
    const size_t space = verb.name.find(' ');
    if (space != std::string::npos) {
      words[verb.name.substr(0, space)].push_back({verb.name.substr(space + 1), verb.help});
    }
    if (!verb.about_verb) continue;
    for (const FirstWord& first : first_words(verbs)) words[verb.name].push_back(first);
  }
  return words;
}

std::vector<std::string> names_of_two_words(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) {
    if (verb.name.find(' ') != std::string::npos) names.push_back(verb.name);
  }
  return names;
}

std::string name_if(const std::vector<Verb>& verbs, bool Verb::*member) {
  const auto verb = std::ranges::find_if(verbs, [&](const Verb& v) { return v.*member; });
  return verb == verbs.end() ? "" : verb->name;
}

std::vector<std::string> words_of(const std::vector<FirstWord>& words) {
  std::vector<std::string> result;
  for (const FirstWord& word : words) result.push_back(word.word);
  return result;
}

// The patterns of a `case` that match "VERB FLAG" for a flag. `is_only`: the flag has one meaning.
std::string flag_patterns(const CompletionFlag& flag, bool is_only) {
  if (is_only) return "*\" " + flag.flag + "\"";
  std::vector<std::string> patterns;
  for (const std::string& verb : flag.verbs) patterns.push_back(fmt::format("\"{} {}\"", verb, flag.flag));
  return joined(patterns, "|");
}

// A `case` that sets `files`, `many`, `bare`, `value` and the variable `words` for the flag.
std::string value_cases(const std::vector<CompletionFlag>& flags, const std::string& words) {
  std::string text = "  case \"$verb $flag\" in\n";
  text += fmt::format("    *' --help') value=1 bare=1 {}=all ;;\n", words);
  for (const CompletionFlag& flag : flags) {
    if (!flag.takes_value) continue;
    const auto count = std::ranges::count(flags, flag.flag, &CompletionFlag::flag);
    text += fmt::format("    {}) value=1", flag_patterns(flag, count == 1));
    if (flag.takes_files) text += " files=1";
    if (flag.takes_many) text += " many=1";
    if (flag.may_be_bare) text += " bare=1";
    if (!flag.words.empty()) text += fmt::format(" {}={}", words, single_quoted(joined(flag.words, " ")));
    text += " ;;\n";
  }
  return text + "  esac\n";
}

std::string header(const std::string& shell, const std::string& how) {
  return fmt::format("# Completes the commands of tessera in {0}. Made by: tessera completions {0}\n# {1}\n", shell,
                     how);
}

// Steps that bash and zsh write in the same way. `word(i)` of the script gives word i of the command line before the
// cursor; word 0 is the program. They set `verb`, `begin` (the first word after the verb), `flag` and the variables of
// value_cases().
std::string find_verb(const std::vector<Verb>& verbs) {
  std::vector<std::string> two;
  for (const std::string& name : names_of_two_words(verbs)) two.push_back(single_quoted(name));
  const std::string about = name_if(verbs, &Verb::about_verb), takes = name_if(verbs, &Verb::takes_command);
  return fmt::format(
      "  verb=${{before[0]}} begin=1\n"
      "  case \"$verb ${{before[1]}}\" in\n"
      "    {}) verb=\"$verb ${{before[1]}}\" begin=2 ;;\n"
      "    {}' '*)\n"
      "      case \"${{before[1]}} ${{before[2]}}\" in\n"
      "        {}) verb=\"${{before[1]}} ${{before[2]}}\" begin=3 ;;\n"
      "        {}) verb=${{before[1]}} begin=2 ;;\n"
      "      esac ;;\n"
      "  esac\n"
      "  # The flags of {} end where another command begins.\n"
      "  if [[ $verb == {} ]]; then\n"
      "    for ((i = begin; i < count; ++i)); do\n"
      "      case \"${{before[i]}}\" in\n"
      "        train|*.toml) verb=train begin=$((i + 1)); break ;;\n"
      "        sweep) verb=sweep begin=$((i + 1)); break ;;\n"
      "      esac\n"
      "    done\n"
      "  fi\n",
      joined(two, "|"), about, joined(two, "|"),
      [&] {
        std::vector<std::string> patterns;
        for (const FirstWord& word : first_words(verbs)) patterns.push_back("'" + word.word + " '*");
        return joined(patterns, "|");
      }(),
      takes, takes);
}

// Finds the flag before the cursor. Its name may have underscores.
constexpr const char* kFindFlag =
    "  flag= value= files= many= bare=\n"
    "  for ((i = count - 1; i >= begin; --i)); do\n"
    "    if [[ ${before[i]} == --?* ]]; then flag=${before[i]//_/-}; break; fi\n"
    "  done\n";

// A flag that has its value is of no interest. A list takes every word up to the next flag.
constexpr const char* kDropFlag =
    "  if [[ $flag == *=* ]] || [[ -z $many ]] && ((i + 1 < count)); then value= bare=; fi\n";

// What may follow a verb that is no flag: sets `files` and the variable `words`.
std::string operand_cases(const std::vector<Verb>& verbs, const std::string& words) {
  std::string text;
  for (const Verb& verb : verbs) {
    const std::vector<std::string> operands = operand_words(verb);
    const std::string name = single_quoted(verb.name);
    if (!operands.empty()) {
      text += fmt::format("    {}) files= {}={} ;;\n", name, words, single_quoted(joined(operands, " ")));
    } else if (verb.groups == 0) {
      text += fmt::format("    {}) files= ;;\n", name);
    } else if (!verb.operands.empty()) {
      text += fmt::format("    {}) files=1 ;;\n", name);
    }
  }
  return text;
}

std::string second_word_cases(const std::vector<Verb>& verbs, const std::string& words) {
  std::string text;
  for (const auto& [first, second] : second_words(verbs)) {
    text +=
        fmt::format("      {}) {}={} ;;\n", single_quoted(first), words, single_quoted(joined(words_of(second), " ")));
  }
  return text;
}

// The words and files that may follow if no flag waits for a value: sets `files` and the variable `words`.
std::string operand_steps(const std::vector<Verb>& verbs, const std::string& words) {
  return "  if [[ -z $value ]]; then\n    " + words +
         "= files=toml\n"
         "    if ((count == 1)); then\n"
         "      case \"$verb\" in\n" +
         second_word_cases(verbs, words) +
         "      esac\n"
         "    fi\n"
         "    case \"$verb\" in\n" +
         operand_cases(verbs, words) +
         "    esac\n"
         "  fi\n";
}

std::string flags_of_verbs(const std::vector<Verb>& verbs, const std::vector<CompletionFlag>& flags) {
  std::string text;
  for (const Verb& verb : verbs) {
    std::vector<std::string> names{"--help"};
    for (const CompletionFlag& flag : flags) {
      if (std::ranges::find(flag.verbs, verb.name) != flag.verbs.end()) names.push_back(flag.flag);
    }
    text += fmt::format("    {}) flags={} ;;\n", single_quoted(verb.name), single_quoted(joined(names, " ")));
  }
  return text;
}

std::string bash_script(const std::vector<Verb>& verbs) {
  const std::vector<CompletionFlag> flags = completion_flags(verbs);
  std::string text = header("bash", "Use: source <(tessera completions bash), for example in ~/.bashrc");
  text +=
      "_tessera() {\n"
      "  local cur verb flag value files many bare words flags i begin count line\n"
      "  local -a before=()\n"
      "  COMPREPLY=()\n"
      "  cur=${COMP_WORDS[COMP_CWORD]}\n"
      "  # bash divides --flag=value into three words.\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    [[ ${COMP_WORDS[i]} == '=' ]] || before+=(\"${COMP_WORDS[i]}\")\n"
      "  done\n"
      "  if [[ $cur == '=' ]]; then cur=; fi\n"
      "  count=${#before[@]}\n"
      "  if ((count == 0)); then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W {} -- \"$cur\"))\n    return\n  fi\n",
                      single_quoted(joined(words_of(first_words(verbs)), " ") + " --help --version"));
  text += find_verb(verbs) + kFindFlag + value_cases(flags, "words") + kDropFlag;
  text +=
      "  if [[ $cur == -* || ( -n $bare && -z $cur ) ]]; then\n"
      "    flags=\n"
      "    case \"$verb\" in\n" +
      flags_of_verbs(verbs, flags) +
      "    esac\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
      "    [[ $cur == -* ]] && return\n"
      "  fi\n" +
      operand_steps(verbs, "words") +
      "  [[ -n $words ]] && COMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  [[ -n $files ]] || return 0\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  while IFS= read -r line; do\n"
      "    [[ $files == toml && $line != *.toml && ! -d $line ]] || COMPREPLY+=(\"$line\")\n"
      "  done < <(compgen -f -- \"$cur\")\n"
      "}\n"
      "complete -F _tessera tessera\n";
  return text;
}

std::string zsh_described(const std::vector<FirstWord>& words) {
  std::string text;
  for (const FirstWord& word : words) {
    std::string name = word.word;
    for (size_t at = 0; (at = name.find(':', at)) != name.npos; at += 2) name.insert(at, "\\");
    text += "    " + single_quoted(name + ":" + word.help) + "\n";
  }
  return text;
}

// In zsh, the array `words` has the words of the command line.
std::string zsh_script(const std::vector<Verb>& verbs) {
  const std::vector<CompletionFlag> flags = completion_flags(verbs);
  std::string text = "#compdef tessera\n";
  text += header("zsh", "Use: tessera completions zsh > _tessera, in a folder of $fpath");
  text +=
      "_tessera() {\n"
      "  setopt localoptions ksharrays\n"
      "  local verb flag value files many bare choices i begin count cur\n"
      "  local -a before described\n"
      "  before=(\"${words[@]:1:$((CURRENT - 2))}\")\n"
      "  cur=${words[CURRENT-1]}\n"
      "  count=${#before[@]}\n"
      "  if ((count == 0)); then\n"
      "    described=(\n" +
      zsh_described(first_words(verbs)) +
      "    '--help:Print help'\n"
      "    '--version:Print the version'\n"
      "    )\n"
      "    unsetopt ksharrays\n"
      "    _describe verb described\n"
      "    return\n"
      "  fi\n" +
      find_verb(verbs) + kFindFlag +
      "  if [[ $cur == --*=* ]]; then flag=${cur%%=*}; fi\n"
      "  flag=${flag//_/-}\n" +
      value_cases(flags, "choices") +
      "  if [[ $cur == --*=* ]]; then\n"
      "    unsetopt ksharrays\n"
      "    compset -P '*='\n"
      "    compadd -- ${=choices}\n"
      "    if [[ -n $files ]]; then _files; fi\n"
      "    return\n"
      "  fi\n" +
      kDropFlag +
      "  if [[ $cur == -* || ( -n $bare && -z $cur ) ]]; then\n"
      "    described=('--help:Print help')\n"
      "    case \"$verb\" in\n";
  for (const Verb& verb : verbs) {
    std::vector<FirstWord> of_verb;
    for (const CompletionFlag& flag : flags) {
      if (std::ranges::find(flag.verbs, verb.name) != flag.verbs.end()) of_verb.push_back({flag.flag, flag.help});
    }
    if (of_verb.empty()) continue;
    text += fmt::format("    {}) described+=(\n{}    ) ;;\n", single_quoted(verb.name), zsh_described(of_verb));
  }
  text +=
      "    esac\n"
      "    unsetopt ksharrays\n"
      "    _describe -o flag described\n"
      "    [[ $cur == -* ]] && return\n"
      "  fi\n" +
      operand_steps(verbs, "choices") +
      "  unsetopt ksharrays\n"
      "  if [[ -n $choices ]]; then compadd -- ${=choices}; fi\n"
      "  if [[ $files == toml ]]; then\n"
      "    _files -g '*.toml'\n"
      "  elif [[ -n $files ]]; then\n"
      "    _files\n"
      "  fi\n"
      "}\n"
      "if [[ ${funcstack[1]} == _tessera ]]; then _tessera \"$@\"; else compdef _tessera tessera; fi\n";
  return text;
}

std::string fish_script(const std::vector<Verb>& verbs) {
  const std::vector<CompletionFlag> flags = completion_flags(verbs);
  std::string text = header("fish", "Write it to ~/.config/fish/completions/tessera.fish");
  std::vector<std::string> two;
  for (const std::string& name : names_of_two_words(verbs)) two.push_back(fish_quoted(name));
  const std::string about = name_if(verbs, &Verb::about_verb), takes = name_if(verbs, &Verb::takes_command);
  // The verb of the command line before the cursor, as find_verb() finds it.
  text += fmt::format(
      "function __tessera_verb\n"
      "    set -l before (commandline -opc)\n"
      "    set -e before[1]\n"
      "    test (count $before) -gt 0; or return\n"
      "    if test \"$before[1]\" = {0}; and test (count $before) -gt 1\n"
      "        contains -- \"$before[2]\" {1}; and set -e before[1]\n"
      "    end\n"
      "    if test (count $before) -gt 1; and contains -- \"$before[1] $before[2]\" {2}\n"
      "        echo \"$before[1] $before[2]\"\n"
      "        return\n"
      "    end\n"
      "    # The flags of {3} end where another command begins.\n"
      "    if test \"$before[1]\" = {3}\n"
      "        for word in $before[2..]\n"
      "            switch $word\n"
      "                case train '*.toml'\n"
      "                    echo train\n"
      "                    return\n"
      "                case sweep\n"
      "                    echo sweep\n"
      "                    return\n"
      "            end\n"
      "        end\n"
      "    end\n"
      "    echo \"$before[1]\"\n"
      "end\n"
      "function __tessera_in\n"
      "    contains -- (__tessera_verb) $argv\n"
      "end\n"
      "function __tessera_words_are\n"
      "    test (count (commandline -opc)) -eq $argv[1]\n"
      "end\n"
      "function __tessera_toml\n"
      "    __fish_complete_suffix .toml\n"
      "end\n"
      "complete -c tessera -f\n",
      about, joined(words_of(first_words(verbs)), " "), joined(two, " "), takes);
  for (const FirstWord& word : first_words(verbs)) {
    text +=
        fmt::format("complete -c tessera -n '__tessera_words_are 1' -a {} -d {}\n", word.word, fish_quoted(word.help));
  }
  text += "complete -c tessera -n '__tessera_words_are 1' -l version -d 'Print the version'\n";
  for (const auto& [first, second] : second_words(verbs)) {
    for (const FirstWord& word : second) {
      text += fmt::format("complete -c tessera -n '__tessera_words_are 2; and __tessera_in {}' -a {} -d {}\n", first,
                          word.word, fish_quoted(word.help));
    }
  }
  for (const Verb& verb : verbs) {
    const std::vector<std::string> operands = operand_words(verb);
    const std::string name = fish_quoted(verb.name);
    const std::string condition = fmt::format("-n {}", fish_quoted("__tessera_in " + name));
    if (!operands.empty()) {
      text += fmt::format("complete -c tessera {} -a {}\n", condition, fish_quoted(joined(operands, " ")));
    } else if (verb.groups != 0 && verb.operands.empty()) {
      text += fmt::format("complete -c tessera {} -a '(__tessera_toml)'\n", condition);
    } else if (!verb.operands.empty()) {
      text += fmt::format("complete -c tessera {} -F\n", condition);
    }
  }
  text += "complete -c tessera -l help -s h -d 'Print help'\n";
  for (const CompletionFlag& flag : flags) {
    std::vector<std::string> names;
    for (const std::string& verb : flag.verbs) names.push_back(fish_quoted(verb));
    text += fmt::format("complete -c tessera -n {} -l {} -d {}", fish_quoted("__tessera_in " + joined(names, " ")),
                        flag.flag.substr(2), fish_quoted(flag.help));
    if (flag.takes_value) text += flag.takes_files ? " -r -F" : " -x";
    if (!flag.words.empty()) text += " -a " + fish_quoted(joined(flag.words, " "));
    text += "\n";
  }
  return text;
}

using Script = std::string (*)(const std::vector<Verb>&);
const std::map<std::string, Script>& scripts() {
  static const std::map<std::string, Script> table = {
      {"bash", bash_script}, {"fish", fish_script}, {"zsh", zsh_script}};
  return table;
}

}  // namespace

std::vector<std::string> completed_shells() {
  std::vector<std::string> names;
  for (const auto& [name, script] : scripts()) names.push_back(name);
  return names;
}

std::string completion_script(const std::string& shell, const std::vector<Verb>& verbs) {
  const auto script = scripts().find(shell);
  TESSERA_ASSERT(script != scripts().end());
  return script->second(verbs);
}

}  // namespace tessera
