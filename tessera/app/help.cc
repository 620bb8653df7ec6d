#include "tessera/app/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/counted.h"
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"

namespace tessera {

namespace {

constexpr size_t kWidth = 80;
constexpr size_t kFewSettings = 8;  // the short help shows all settings of a verb that has at most this many

// Breaks `text` into lines of at most kWidth characters. The first line follows `head`. The next lines are indented by
// the width of `head`.
std::string wrapped(const std::string& head, const std::string& text) {
  std::string result, line = head;
  bool is_empty = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!is_empty && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = std::string(head.size(), ' ');
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
    is_empty = false;
  }
  return result + line + "\n";
}

// Without the last newline.
std::string without_end(std::string text) {
  text.pop_back();
  return text;
}

// Breaks a command into lines of at most kWidth characters, where possible. A new line begins with a flag. Backslashes
// join the lines for a shell.
std::string command_lines(const std::string& command) {
  constexpr size_t kIndent = 2, kContinuation = 2;  // kContinuation: the size of " \"
  std::string result, line(kIndent, ' ');
  for (size_t begin = 0; begin < command.size();) {
    const size_t end = std::min(command.find(" --", begin + 1), command.size());
    const std::string part = command.substr(begin, end - begin);
    if (line.size() + part.size() + kContinuation > kWidth) {
      result += line + " \\\n";
      line = std::string(kIndent + 1, ' ');  // the part begins with a blank
    }
    line += part;
    begin = end;
  }
  return result + line + "\n";
}

std::string example(const std::string& command) {
  return command.empty() ? "" : fmt::format("\nExample:\n{}", command_lines(command));
}

std::string preset_text(const Setting& setting) {
  return plain_text(setting.get(Settings{}));
}

// The word for the file in a usage line.
std::string file_word(const Verb& verb) {
  return verb.own_file.empty() ? "[config.toml]" : verb.own_file;
}

std::string usage_line(const Verb& verb, const Verb& subject) {
  const std::string about = !verb.about_verb ? "" : &subject == &verb ? " [verb]" : " " + subject.name;
  const std::string operands = verb.operands.empty() ? "" : " " + verb.operands;
  if (verb.groups == 0) return fmt::format("{}.\n\nUsage: tessera {}{}\n", verb.help, verb.name, operands);
  if (verb.takes_command) {
    return fmt::format(
        "{0}.\n\nUsage: tessera {1} [--flags] [train] config.toml [--flags of train]\n"
        "       tessera {1} [--flags] sweep sweep.toml|FOLDER [--flags of train]\n",
        verb.help, verb.name);
  }
  return fmt::format("{}.\n\nUsage: tessera {}{}{} {} [--flags]\n", verb.help, verb.name, about, operands,
                     file_word(verb));
}

// Says where settings can come from, except flags: a file or the environment. For `sweep` (Verb::own_file), says
// instead that the verb also takes the settings of train.
std::string other_sources(const Verb& verb) {
  if (!verb.own_file.empty()) {
    return "\nIt also takes the settings of train, for every run: see tessera train --help.";
  }
  if (verb.takes_command) {
    return "\nSettings can also come from the table [slurm] of config.toml or the environment\n"
           "(TESSERA_PARTITION=gpu).";
  }
  return "\nSettings can also come from config.toml (batch_size = 8) or the environment\n"
         "(TESSERA_BATCH_SIZE=8).";
}

// The words after `tessera` in the help command of the verb.
std::string help_command(const Verb& verb, const Verb& subject) {
  return (&subject == &verb ? verb.name : verb.name + " " + subject.name) + " --help";
}

// Shows the choices of a setting in the line of the flag if they fit there, otherwise after the help text.
std::string setting_help(const Setting& setting, Groups groups) {
  const std::string flag = setting.flag_in(groups);
  std::string text = setting.help, head = "  " + flag;
  if (setting.type == SettingType::boolean) {
    head += ", --no-" + dashed(setting.name);
  } else if (setting.type != SettingType::choice) {
    head += " " + setting.unit;
  } else if (const std::string choices = joined(setting.choices, "|"); head.size() + 1 + choices.size() <= kWidth) {
    head += " " + choices;
  } else {
    head += " WORD";
    text += fmt::format(" ({})", joined(setting.choices, ", "));
  }
  const std::string preset = preset_text(setting);
  if (!preset.empty()) text += fmt::format(" [default: {}]", preset);
  std::vector<std::string> others = setting.aliases;
  if (flag != "--" + dashed(setting.name)) others.push_back(setting.name);
  if (!others.empty()) {
    std::vector<std::string> aliases;
    for (const auto& alias : others) aliases.push_back("--" + dashed(alias));
    text += fmt::format(" [also: {}]", joined(aliases, ", "));
  }
  return head + "\n" + wrapped(std::string(6, ' '), text);
}

std::string brief_head(const Setting& setting, Groups groups) {
  const std::string value = setting.type == SettingType::choice ? "WORD" : setting.unit;
  return "  " + setting.flag_in(groups) + (value.empty() ? "" : " " + value);
}

// A title, then the flag and a short text for each setting. `with_defaults` adds each default, unless the setting is a
// boolean or the default is 0 or empty.
std::string brief_settings(const std::string& title, const std::vector<const Setting*>& settings, Groups groups,
                           bool with_defaults) {
  if (settings.empty()) return "";
  constexpr size_t kTextColumn = 27;
  std::string text = fmt::format("\n{}:\n", title);
  for (const Setting* setting : settings) {
    const std::string preset = preset_text(*setting);
    const bool has_preset = with_defaults && setting->type != SettingType::boolean && !preset.empty() && preset != "0";
    text += wrapped(
        fmt::format("{:<{}}", brief_head(*setting, groups), kTextColumn),
        (setting->brief.empty() ? setting->help : setting->brief) + (has_preset ? fmt::format(" [{}]", preset) : ""));
  }
  return text;
}

bool is_required(const Verb& verb, const Setting& setting) {
  return std::ranges::find(verb.required, setting.name) != verb.required.end();
}

}  // namespace

std::string enumerated(const std::vector<std::string>& words, const std::string& last_word) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 < words.size() ? ", " : fmt::format(" {} ", last_word);
    text += words[i];
  }
  return text;
}

std::string version_text() {
#if defined(__clang__)
  const std::string compiler = fmt::format("Clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("GCC {}", __VERSION__);
#endif
  return fmt::format("tessera {} ({})", TESSERA_VERSION, compiler);
}

namespace {

std::string verb_lines(const std::vector<Verb>& verbs) {
  std::string text;
  size_t width = 0;
  for (const auto& verb : verbs) width = std::max(width, verb.name.size());
  for (const auto& verb : verbs) text += fmt::format("  {:<{}}  {}\n", verb.name, width, verb.help);
  return text;
}

}  // namespace

std::vector<ExitCodeHelp> exit_code_help() {
  return {{"0", "done"},
          {"1", "failure at run time"},
          {"2", "wrong usage or configuration"},
          {"3", "bad input file"},
          {"4", "out of memory"},
          {"5", "communication failed"},
          {"75", "stopped by a signal: run the same command again to continue"},
          {"128+n", "ended at once by a second signal, whose number is n"}};
}

std::string program_purpose() {
  return fmt::format(
      "Tessera fine-tunes language models of the {} families, sharded over CPU ranks or GPUs. It reads "
      "and writes Hugging Face model folders.",
      listed(model_families()));
}

std::string precedence_help() {
  return "A value comes from its flag (--batch-size 8), else TESSERA_BATCH_SIZE=8 in the environment, else "
         "batch_size = 8 in config.toml, else it is the default.";
}

std::string program_help(const std::vector<Verb>& verbs) {
  std::vector<std::string> codes;
  for (const ExitCodeHelp& code : exit_code_help()) codes.push_back(code.code + " " + code.meaning);
  return wrapped("", program_purpose()) +
         "\nUsage: tessera <verb> [config.toml] [--flags]\n\n"
         "Verbs:\n" +
         verb_lines(verbs) + example(verbs.empty() ? "" : verbs.front().example) +
         "\nOptions:\n"
         "  -h, --help     Print help; tessera <verb> --help shows the settings of a verb\n"
         "  --version      Print the version\n\n" +
         wrapped("", precedence_help()) + "\n" + without_end(wrapped("", "Exit codes: " + joined(codes, "; ") + "."));
}

std::string family_help(const std::string& word, const std::vector<Verb>& verbs) {
  std::vector<Verb> family;
  std::ranges::copy_if(verbs, std::back_inserter(family),
                       [&](const Verb& verb) { return verb.name.starts_with(word + " "); });
  return fmt::format(
      "Usage: tessera {0} <verb> [config.toml] [--flags]\n\nVerbs:\n{1}{2}\nSettings: tessera {3} --help", word,
      verb_lines(family), example(family.front().example), family.front().name);
}

std::string brief_help(const Verb& verb, const Verb& subject, Groups groups) {
  if (groups == 0) return without_end(usage_line(verb, subject) + example(verb.example));
  std::vector<const Setting*> required, others;
  for (const auto& name : verb.required) required.push_back(find_setting(name));
  // `config` takes the settings of any verb, but its short help shows only the settings for printing.
  const std::vector<const Setting*> all = settings_of(verb.about_verb ? groups & kPresentation : groups);
  for (const Setting* setting : all) {
    const bool is_first = all.size() <= kFewSettings || (setting->brief_for & groups) != 0;
    if (is_first && !is_required(verb, *setting)) others.push_back(setting);
  }
  const std::string about_verb =
      !verb.about_verb ? ""
      : &subject == &verb
          ? "\nIt also takes the settings of the verb, for example of train:\nsee tessera train --help.\n"
          : fmt::format("\nIt also takes the settings of {0}:\nsee tessera {0} --help.\n", subject.name);
  return usage_line(verb, subject) + about_verb + brief_settings("Required", required, groups, false) +
         brief_settings(required.empty() ? "Settings [default]" : "Often used [default]", others, groups, true) +
         example(verb.example) +
         fmt::format("{}\nAll {} settings: tessera {} all", other_sources(verb), settings_of(groups).size(),
                     help_command(verb, subject));
}

std::string full_help(const Verb& verb, const Verb& subject, Groups groups) {
  if (groups == 0) return brief_help(verb, subject, groups);
  std::string text = usage_line(verb, subject);
  if (!verb.required.empty()) {
    std::vector<std::string> flags;
    for (const auto& name : verb.required) flags.push_back("--" + dashed(name));
    text += fmt::format("Required: {}\n", joined(flags, ", "));
  }
  Groups last_group = 0;
  for (const Setting* setting : settings_of(groups)) {
    if (setting->group != last_group) text += fmt::format("\n{}:\n", title_of(setting->group));
    last_group = setting->group;
    text += setting_help(*setting, groups);
  }
  return text + other_sources(verb) + (verb.own_file.empty() ? " " : "\n") +
         "A setting's name may have dashes or underscores.";
}

}  // namespace tessera
