// Helpers that declare one setting per call. Only the files with declarations include this header.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/settings/setting.h"
#include "tessera/settings/setting_words.h"

namespace tessera::declaring {

using S = Settings;
using Names = std::vector<std::string>;

constexpr double kMaxCount = 2147483647;  // a count always fits into an int
constexpr double kMaxSeed = 9.2e18;       // below 2^63
constexpr Range kCount{0, kMaxCount};     // 0 may have a special meaning: see the setting's help
constexpr Range kPositive{1, kMaxCount};
constexpr Range kNonNegativeReal{.min = 0};
constexpr Range kUnitInterval{.min = 0, .max = 1};
constexpr Range kBelowOne{.min = 0, .max = 1, .open_max = true};

// Where help texts show a setting (under a group, and perhaps in the short help), and its effect on a run that
// continues from a checkpoint.
struct Role {
  Role(Group its_group) : group(its_group) {}  // NOLINT: implicit, because most declarations give only a group
  Group group;
  const char* line = "";
  Groups brief_for = 0;
  std::optional<Resume> resume{};
  const char* fact = "";
};

// The role of a setting that new users need. If a verb takes one of the groups `verbs`, its short help shows the
// setting with the text `line`.
inline Role brief(Role role, const char* line, Groups verbs = kAllGroups) {
  role.line = line;
  role.brief_for = verbs;
  return role;
}

// Checkpoints record the setting, and `resume` says which runs may change it.
inline Role recorded(Resume resume, Role role) {
  role.resume = resume;
  return role;
}

// The facts that checkpoints record in place of the settings that determine them.
constexpr const char* const kTheModel = "the model";
constexpr const char* const kTheDropout = "the dropout of the model";
constexpr const char* const kTheSamples = "the training samples";
constexpr const char* const kTheStep = "the number of samples or tokens of a step";
constexpr const char* const kTheEvaluation = "the evaluations and their samples";

// The setting and others determine `fact`.
inline Role determines(const char* fact, Role role, Resume resume = Resume::never) {
  role.resume = resume;
  role.fact = fact;
  return role;
}

// `get` and `set` convert between the member of Settings and its SettingValue.
template <typename Get, typename Set>
Setting declare(const char* name, const Role& role, SettingType type, const char* unit, std::string help, Get get,
                Set set) {
  return {.name = name,
          .group = role.group,
          .type = type,
          .unit = unit,
          .help = std::move(help),
          .brief = role.line,
          .brief_for = role.brief_for,
          .resume = role.resume,
          .fact = role.fact,
          .get = std::move(get),
          .set = std::move(set)};
}

template <typename T>
Setting plain(const char* name, T S::*field, const Role& role, SettingType type, const char* unit, std::string help,
              Names aliases) {
  Setting setting = declare(
      name, role, type, unit, std::move(help), [field](const S& s) { return SettingValue(s.*field); },
      [field](S& s, const SettingValue& value) { s.*field = std::get<T>(value); });
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting text(const char* name, std::string S::*field, const Role& role, const char* unit, std::string help,
                    Names aliases = {}) {
  return plain(name, field, role, SettingType::text, unit, std::move(help), std::move(aliases));
}

// A text that stands for a value of type T. parse(text, where) returns the value. Its errors name the place `where`.
// print(value) returns the canonical text.
template <typename T, typename Parse, typename Print>
Setting parsed(const char* name, T S::*field, const Role& role, const char* unit, const char* help, Parse parse,
               Print print) {
  const auto with_text = [print](T value) {
    std::string canonical = print(value);
    return ParsedValue(std::move(canonical), std::move(value));
  };
  Setting setting = declare(
      name, role, SettingType::text, unit, help,
      [field, with_text](const S& s) { return SettingValue(with_text(s.*field)); },
      [field](S& s, const SettingValue& value) { s.*field = std::any_cast<T>(std::get<ParsedValue>(value).value); });
  setting.parse = [parse, with_text](const std::string& text, const std::string& where) -> SettingValue {
    return with_text(parse(text, where));
  };
  return setting;
}

// A text whose value in a configuration file may also be a number or a boolean, without quotes.
inline Setting takes_scalars(Setting setting) {
  setting.takes_scalars = true;
  return setting;
}

// Several texts: several words after a flag, or a list in a file.
inline Setting list(const char* name, Names S::*field, const Role& role, const char* unit, const char* help) {
  return declare(
      name, role, SettingType::list, unit, help, [field](const S& s) { return list_value(s.*field); },
      [field](S& s, const SettingValue& value) { s.*field = texts_of(value); });
}

inline Setting boolean(const char* name, bool S::*field, const Role& role, const char* help, Names aliases = {}) {
  return plain(name, field, role, SettingType::boolean, "", help, std::move(aliases));
}

inline Setting integer(const char* name, int64_t S::*field, const Role& role, const char* unit, Range range,
                       const char* help, Names aliases = {}) {
  Setting setting = plain(name, field, role, SettingType::integer, unit, help, std::move(aliases));
  setting.range = range;
  return setting;
}

inline Setting steps(const char* name, StepCount S::*field, const Role& role, const char* help) {
  Setting setting = declare(
      name, role, SettingType::integer, "STEPS", help,
      [field](const S& s) {
        const StepCount& count = s.*field;
        return count.fraction > 0 ? SettingValue(count.fraction) : SettingValue(count.steps);
      },
      [field](S& s, const SettingValue& value) {
        const auto* fraction = std::get_if<double>(&value);
        s.*field = fraction ? 0 : std::get<int64_t>(value);
        if (fraction) (s.*field).fraction = *fraction;
      });
  setting.range = kCount;
  setting.takes_fraction = true;
  return setting;
}

inline Setting real(const char* name, double S::*field, const Role& role, const char* unit, Range range,
                    const char* help, Names aliases = {}) {
  Setting setting = plain(name, field, role, SettingType::real, unit, help, std::move(aliases));
  setting.range = range;
  return setting;
}

// A number of bytes, given as a number with a unit.
inline Setting bytes(const char* name, int64_t S::*field, const Role& role, Range range, const char* help) {
  const auto parse = [field](const std::string& text, const std::string& where) {
    const std::string preset = bytes_text(Settings().*field);
    const size_t unit = preset.find_first_not_of("0123456789");  // "MiB" for 25MiB
    return parse_bytes(text, where, unit == std::string::npos ? "GiB" : preset.substr(unit));
  };
  Setting setting = parsed(name, field, role, "SIZE", help, parse, bytes_text);
  setting.type = SettingType::bytes;
  setting.range = range;
  return setting;
}

template <typename E>
Setting choice(const char* name, E S::*field, const Role& role, std::vector<std::pair<const char*, E>> words,
               const char* help, Names aliases = {}) {
  const auto get = [field, words](const S& s) {
    const auto it = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.second == s.*field; });
    TESSERA_ASSERT(it != words.end());
    return SettingValue(std::string(it->first));
  };
  const auto set = [field, words](S& s, const SettingValue& value) {
    const auto& word = std::get<std::string>(value);
    const auto it = std::find_if(words.begin(), words.end(), [&](const auto& w) { return word == w.first; });
    TESSERA_ASSERT(it != words.end());
    s.*field = it->second;
  };
  Setting setting = declare(name, role, SettingType::choice, "", help, get, set);
  setting.aliases = std::move(aliases);
  for (const auto& [word, value] : words) setting.choices.push_back(word);
  return setting;
}

// A choice that also knows words of other tools: synonyms of its own words, and words that it refuses with a remedy.
inline Setting with_words(Setting setting, std::vector<std::pair<std::string, std::string>> synonyms,
                          std::vector<std::pair<std::string, std::string>> refused = {}) {
  setting.synonyms = std::move(synonyms);
  setting.refused = std::move(refused);
  return setting;
}

// A text whose empty value does not mean that it is not given.
inline Setting may_be_empty(Setting setting) {
  setting.may_be_empty = true;
  return setting;
}

// The flag is --WORD instead of the setting's name, in verbs without a setting of this name.
inline Setting with_flag(const char* word, Setting setting) {
  setting.flag_word = word;
  return setting;
}

// Marks a setting that only sets other settings.
inline Setting for_others(Setting setting) {
  setting.stands_for_others = true;
  return setting;
}

// The definition of each function is in the file that has the function's name, for example trainer_settings.cc.
std::vector<Setting> model_settings();
std::vector<Setting> data_settings();
std::vector<Setting> adapter_settings();
std::vector<Setting> chat_settings();
std::vector<Setting> optimization_settings();
std::vector<Setting> schedule_settings();
std::vector<Setting> checkpoint_settings();
std::vector<Setting> generation_settings();
std::vector<Setting> machine_settings();
std::vector<Setting> sharding_settings();
std::vector<Setting> trainer_settings();
std::vector<Setting> nettest_settings();
std::vector<Setting> memory_log_settings();
std::vector<Setting> slurm_settings();
std::vector<Setting> sweep_settings();
std::vector<Setting> report_settings();
std::vector<Setting> tracker_settings();

}  // namespace tessera::declaring
