// Flags of a verb, read with CLI11.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tessera/app/command_line.h"
#include "tessera/base/error.h"
#include "tessera/settings/suggest.h"

namespace tessera {

namespace {

bool is_long_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--");
}

// Words as CLI11 takes them: dashes in the names of flags, and `--x=` (an empty value) as two words, because CLI11
// would take the word after it for the value.
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
    if (equals != std::string::npos && equals + 1 < word.size()) {
      result.back() += word.substr(equals);
      continue;
    }
    const Setting* setting = find_setting(name);
    if (!setting || !(setting->group & groups) || setting->type == SettingType::boolean) continue;
    if (equals != std::string::npos) {
      result.push_back("");
    } else if (i + 1 == words.size() || is_long_flag(words[i + 1])) {
      throw UsageError("--" + name, "needs a value",
                       fmt::format("Write --{} {} or --{}={}", name, setting->unit.empty() ? "VALUE" : setting->unit,
                                   name, setting->unit.empty() ? "VALUE" : setting->unit));
    } else {
      result.push_back(words[++i]);
    }
  }
  return result;
}

std::string option_names(const Setting& setting) {
  std::vector<std::string> names = setting.aliases;
  names.insert(names.begin(), setting.name);
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += ",";
    text += "--" + dashed(name);
    if (setting.type == SettingType::boolean) text += ",!--no-" + dashed(name);
  }
  return text;
}

[[noreturn]] void unknown_word(const std::string& word, const Verb& verb, Groups groups) {
  if (!word.starts_with("-")) {
    throw UsageError(word, "is one word too many",
                     fmt::format("Usage: tessera {} {}[config.toml] [--flags]", verb.name,
                                 verb.operands.empty() ? "" : verb.operands + " "));
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string bare = underscored(name.substr(std::min(name.size(), name.find_first_not_of('-'))));
  const Setting* setting = find_setting(bare);
  if (!setting && bare.starts_with("no_")) setting = find_setting(bare.substr(3));
  if (setting && setting->group & groups) {  // --no-x of a setting that is no boolean
    throw UsageError(name, fmt::format("{} is no boolean", setting->flag()));
  }
  if (setting)
    throw UsageError(name, fmt::format("is no setting of {}", verb.name),
                     fmt::format("See tessera {} --help", verb.name));
  std::vector<std::string> flags = {"--help"};
  for (const Setting* known : settings_of(groups)) {
    flags.push_back(known->flag());
    for (const auto& alias : known->aliases) flags.push_back("--" + dashed(alias));
    if (known->type == SettingType::boolean) flags.push_back("--no-" + dashed(known->name));
  }
  std::string remedy = did_you_mean("--" + dashed(bare), flags);
  if (remedy.empty()) remedy = fmt::format("See tessera {} --help", verb.name);
  throw UsageError(name, "unknown flag", remedy);
}

}  // namespace

ParsedFlags parse_flags(const std::vector<std::string>& words, const Verb& verb, Groups groups) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  ParsedFlags parsed;
  app.add_flag("-h,--help", parsed.help);
  std::vector<std::string> others;
  app.add_option("others", others);
  std::vector<std::pair<const Setting*, CLI::Option*>> options;
  for (const Setting* setting : settings_of(groups)) {
    CLI::Option* option = setting->type == SettingType::boolean ? app.add_flag(option_names(*setting))
                                                                : app.add_option(option_names(*setting));
    options.emplace_back(setting, option->take_last());
  }
  std::vector<std::string> reversed = canonical_words(words, groups);
  std::reverse(reversed.begin(), reversed.end());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw UsageError("", error.what(), fmt::format("See tessera {} --help", verb.name));
  }
  if (parsed.help) return parsed;
  for (const auto& word : app.remaining()) {
    if (word != "--") unknown_word(word, verb, groups);
  }
  for (const auto& word : others) {
    if (!verb.operands.empty() && !word.ends_with(".toml")) {
      parsed.operands.push_back(word);
    } else if (parsed.config_file.empty()) {
      parsed.config_file = word;
    } else {
      unknown_word(word, verb, groups);
    }
  }
  for (const auto& [setting, option] : options) {
    if (option->count() > 0) parsed.values.emplace_back(setting, option->results().back());
  }
  return parsed;
}

}  // namespace tessera
