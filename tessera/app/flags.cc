// Reads the flags of a verb with CLI11.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "tessera/app/command_line.h"
#include "tessera/app/usage_errors.h"
#include "tessera/base/error.h"
#include "tessera/settings/foreign/foreign_arguments.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

bool is_long_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--");
}

// Converts the words to the form that CLI11 reads. In the names of flags, dashes replace underscores. `--x=` (an empty
// value) becomes `--x` and an empty word, because CLI11 would take the word after `--x=` as the value. Throws
// UsageError if a value is missing, or if a boolean has an empty value.
std::vector<std::string> canonical_words(const std::vector<std::string>& words, Groups groups) {
  std::vector<std::string> result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      result.insert(result.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (!is_long_flag(word)) {
      result.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = dashed(word.substr(2, equals == std::string::npos ? equals : equals - 2));
    result.push_back("--" + name);
    if (name == "help" && equals != std::string::npos) {  // --help=all
      result.back() = "--help";
      result.push_back(word.substr(equals + 1));
      continue;
    }
    if (equals != std::string::npos && equals + 1 < word.size()) {
      result.back() += word.substr(equals);
      continue;
    }
    const Setting* setting = find_flag(name, groups);
    if (!setting || !(setting->group & groups)) continue;
    if (setting->type == SettingType::boolean) {
      if (equals != std::string::npos) parse_value(*setting, "", setting->flag_in(groups));  // throws
      // A boolean may have a value after it, as in the Hugging Face Trainer: `--fp16 True`.
      if (i + 1 < words.size()) {
        const std::string value = lower(words[i + 1]);
        if (value == "true" || value == "false") result.back() += "=" + value, ++i;
      }
      continue;
    }
    if (equals != std::string::npos) {
      result.push_back("");
    } else if (setting->type == SettingType::list && i + 1 < words.size() && !is_long_flag(words[i + 1])) {
      // Each word gets its own flag. A configuration file ends the list.
      result.push_back(words[++i]);
      while (i + 1 < words.size() && !words[i + 1].starts_with("-") && !words[i + 1].ends_with(".toml")) {
        result.insert(result.end(), {"--" + name, words[++i]});
      }
    } else if (i + 1 == words.size() || is_long_flag(words[i + 1])) {
      if (!setting->bare_value.empty()) {
        result.push_back(setting->bare_value);
        continue;
      }
      throw UsageError("--" + name, "needs a value",
                       fmt::format("Write --{} {} or --{}={}", name, setting->unit.empty() ? "VALUE" : setting->unit,
                                   name, setting->unit.empty() ? "VALUE" : setting->unit));
    } else {
      result.push_back(words[++i]);
    }
  }
  return result;
}

// Returns `words` without the arguments of other trainers and their values. Adds a warning for each of them. Throws
// UsageError if such an argument asks for something that Tessera does not do.
std::vector<std::string> without_foreign(const std::vector<std::string>& words, Groups groups,
                                         std::vector<std::string>& warnings) {
  std::vector<std::string> result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      result.insert(result.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = is_long_flag(word) ? underscored(word.substr(2, equals - 2)) : "";
    const Setting* setting = find_flag(name, groups);
    const ForeignArgument* foreign = setting && setting->group & groups ? nullptr : find_foreign_argument(name);
    std::string value = equals < word.size() ? word.substr(equals + 1) : "";
    if (!foreign && !setting && name.starts_with("no_")) {
      foreign = find_foreign_argument(name.substr(3));
      if (foreign && !foreign->is_flag) foreign = nullptr;
      value = "false";
    } else if (foreign && equals == word.size()) {
      const bool has_next = i + 1 < words.size() && !is_long_flag(words[i + 1]);
      const std::string next = has_next ? lower(words[i + 1]) : "";
      const bool is_value = foreign->is_flag ? next == "true" || next == "false" : has_next;
      value = is_value ? words[++i] : foreign->is_flag ? "true" : "";
    }
    if (foreign) {
      warnings.push_back(note_of_foreign(*foreign, value, word.substr(0, equals)));
    } else {
      result.push_back(word);
    }
  }
  return result;
}

std::string option_names(const Setting& setting, Groups groups) {
  std::vector<std::string> names = setting.aliases;
  names.insert(names.begin(), setting.name);
  std::string text;
  for (const auto& name : names) {
    text += (text.empty() ? "--" : ",--") + dashed(name);
    if (setting.type == SettingType::boolean) text += ",!--no-" + dashed(name);
  }
  const std::string flag = setting.flag_in(groups);
  return flag == "--" + dashed(setting.name) ? text : text + "," + flag;
}

// Throws UsageError. `extras`: all words except the known flags, their values, the configuration file and the operands.
// `words`: all words. The error names the first unknown flag. If all flags are known, it names the first word that
// remedy_for_word() has a correction for. If no word has a correction, it names the first of `extras`.
[[noreturn]] void unknown_word(const std::vector<std::string>& extras, const std::string& config_file,
                               const std::vector<std::string>& words, const Verb& verb, Groups groups,
                               const std::vector<Verb>& verbs) {
  for (const auto& word : extras) {
    if (word.starts_with("-")) unknown_flag(word, verb, groups, verbs);
  }
  // CLI11 takes the first word that is neither a flag nor the value of a flag as the configuration file. If this word
  // does not end in ".toml", it may be a mistake.
  std::vector<std::string> strays = extras;
  if (!config_file.ends_with(".toml")) strays.insert(strays.begin(), config_file);
  for (const auto& word : strays) {
    const std::string remedy = remedy_for_word(word, words, groups, verbs);
    if (!remedy.empty()) throw UsageError(word, "is neither a setting nor a configuration file", remedy);
  }
  throw UsageError(extras[0], "unexpected argument",
                   fmt::format("Usage: tessera {} {} [--flags]", verb.name,
                               verb.own_file.empty() ? "[config.toml]" : verb.own_file));
}

// Moves the operands of a verb from parsed.config_file and `extras` into parsed.operands. The first word that ends in
// ".toml" is the configuration file. Unknown flags, and further words that end in ".toml", stay in `extras`.
void take_operands(ParsedFlags& parsed, std::vector<std::string>& extras) {
  std::vector<std::string> others{std::exchange(parsed.config_file, "")}, left;
  others.insert(others.end(), extras.begin(), extras.end());
  for (const std::string& word : others) {
    if (word.starts_with("-")) {
      left.push_back(word);
    } else if (word.ends_with(".toml")) {
      (parsed.config_file.empty() ? parsed.config_file : left.emplace_back()) = word;
    } else if (!word.empty()) {
      parsed.operands.push_back(word);
    }
  }
  extras = left;
}

}  // namespace

ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups,
                        const std::vector<Verb>& verbs) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  ParsedFlags parsed;
  app.add_flag("-h,--help", parsed.help);
  app.add_option("config", parsed.config_file);
  std::vector<std::pair<const Setting*, CLI::Option*>> options;
  for (const Setting* setting : settings_of(groups)) {
    CLI::Option* option = setting->type == SettingType::boolean ? app.add_flag(option_names(*setting, groups))
                                                                : app.add_option(option_names(*setting, groups));
    options.emplace_back(setting, setting->type == SettingType::list ? option->take_all() : option->take_last());
  }
  std::vector<std::string> reversed = canonical_words(without_foreign(words, groups, parsed.warnings), groups);
  std::reverse(reversed.begin(), reversed.end());  // CLI11 reads the vector from its end
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UsageError("", error.what(), fmt::format("See tessera {} --help all", verb.name));
  }
  std::vector<std::string> extras = app.remaining();
  std::erase(extras, "--");
  if (parsed.help) {
    parsed.full_help = parsed.config_file == "all" || std::ranges::find(extras, "all") != extras.end();
    return parsed;
  }
  if (!verb.operands.empty()) take_operands(parsed, extras);
  if (!extras.empty()) unknown_word(extras, parsed.config_file, words, verb, groups, verbs);
  for (const auto& [setting, option] : options) {
    if (option->count() == 0) continue;
    if (setting->type != SettingType::list) {
      parsed.values.emplace_back(setting, option->results().back());
      continue;
    }
    for (const auto& word : option->results()) parsed.values.emplace_back(setting, word);
  }
  return parsed;
}

}  // namespace tessera
