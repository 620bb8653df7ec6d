// Helpers that declare one setting per call. Only the files with declarations include this header.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/settings/settings.h"

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

// Where help texts show a setting: under a group, and perhaps in the short help.
struct Placement {
  Placement(Group its_group) : group(its_group) {}  // NOLINT: implicit, because most declarations give only a group
  Group group;
  const char* line = "";
  Groups brief_for = 0;
};

// The placement of a setting that new users need. If a verb takes one of the groups `verbs`, its short help shows the
// setting with the text `line`.
inline Placement brief(Group group, const char* line, Groups verbs = kAllGroups) {
  Placement placement(group);
  placement.line = line;
  placement.brief_for = verbs;
  return placement;
}

template <typename T>
Setting declare(const char* name, T S::*field, const Placement& place, SettingType type, const char* unit,
                const char* help) {
  return {.name = name,
          .group = place.group,
          .type = type,
          .unit = unit,
          .help = help,
          .brief = place.line,
          .brief_for = place.brief_for,
          .get = [field](const S& s) { return SettingValue(s.*field); },
          .set = [field](S& s, const SettingValue& value) { s.*field = std::get<T>(value); }};
}

inline Setting text(const char* name, std::string S::*field, const Placement& place, const char* unit, const char* help,
                    Names aliases = {}) {
  Setting setting = declare(name, field, place, SettingType::text, unit, help);
  setting.aliases = std::move(aliases);
  return setting;
}

// Several texts: several words after a flag, or a list in a file.
inline Setting list(const char* name, Names S::*field, const Placement& place, const char* unit, const char* help) {
  return {.name = name,
          .group = place.group,
          .type = SettingType::list,
          .unit = unit,
          .help = help,
          .brief = place.line,
          .brief_for = place.brief_for,
          .get = [field](const S& s) { return list_value(s.*field); },
          .set = [field](S& s, const SettingValue& value) { s.*field = texts_of(value); }};
}

inline Setting boolean(const char* name, bool S::*field, const Placement& place, const char* help, Names aliases = {}) {
  Setting setting = declare(name, field, place, SettingType::boolean, "", help);
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting integer(const char* name, int64_t S::*field, const Placement& place, const char* unit, Range range,
                       const char* help, Names aliases = {}) {
  Setting setting = declare(name, field, place, SettingType::integer, unit, help);
  setting.range = range;
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting steps(const char* name, StepCount S::*field, const Placement& place, const char* help) {
  Setting setting{.name = name,
                  .group = place.group,
                  .type = SettingType::integer,
                  .unit = "STEPS",
                  .help = help,
                  .brief = place.line,
                  .brief_for = place.brief_for,
                  .range = kCount,
                  .takes_fraction = true};
  setting.get = [field](const S& s) {
    const StepCount& count = s.*field;
    return count.fraction > 0 ? SettingValue(count.fraction) : SettingValue(count.steps);
  };
  setting.set = [field](S& s, const SettingValue& value) {
    const auto* fraction = std::get_if<double>(&value);
    s.*field = fraction ? 0 : std::get<int64_t>(value);
    if (fraction) (s.*field).fraction = *fraction;
  };
  return setting;
}

inline Setting real(const char* name, double S::*field, const Placement& place, const char* unit, Range range,
                    const char* help, Names aliases = {}) {
  Setting setting = declare(name, field, place, SettingType::real, unit, help);
  setting.range = range;
  setting.aliases = std::move(aliases);
  return setting;
}

// A number of bytes, given as a number with a unit. Its SettingValue is the text that bytes_text() returns.
inline Setting bytes(const char* name, int64_t S::*field, const Placement& place, Range range, const char* help) {
  return {
      .name = name,
      .group = place.group,
      .type = SettingType::bytes,
      .unit = "SIZE",
      .help = help,
      .brief = place.line,
      .brief_for = place.brief_for,
      .range = range,
      .get = [field](const S& s) { return SettingValue(bytes_text(s.*field)); },
      .set = [field](S& s, const SettingValue& value) { s.*field = parse_bytes(std::get<std::string>(value), ""); }};
}

template <typename E>
Setting choice(const char* name, E S::*field, const Placement& place, std::vector<std::pair<const char*, E>> words,
               const char* help, Names aliases = {}) {
  Setting setting{.name = name,
                  .aliases = std::move(aliases),
                  .group = place.group,
                  .type = SettingType::choice,
                  .help = help,
                  .brief = place.line,
                  .brief_for = place.brief_for};
  for (const auto& [word, value] : words) setting.choices.push_back(word);
  setting.get = [field, words](const S& s) {
    const auto it = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.second == s.*field; });
    TESSERA_ASSERT(it != words.end());
    return SettingValue(std::string(it->first));
  };
  setting.set = [field, words](S& s, const SettingValue& value) {
    const auto& word = std::get<std::string>(value);
    const auto it = std::find_if(words.begin(), words.end(), [&](const auto& w) { return word == w.first; });
    TESSERA_ASSERT(it != words.end());
    s.*field = it->second;
  };
  return setting;
}

// A choice that also knows words of other tools: synonyms of its own words, and words that it refuses with a remedy.
inline Setting with_words(Setting setting, std::vector<std::pair<std::string, std::string>> synonyms,
                          std::vector<std::pair<std::string, std::string>> refused) {
  setting.synonyms = std::move(synonyms);
  setting.refused = std::move(refused);
  return setting;
}

// The definition of each function is in the file that has the function's name, for example trainer_settings.cc.
std::vector<Setting> schedule_settings();
std::vector<Setting> device_settings();
std::vector<Setting> sharding_settings();
std::vector<Setting> trainer_settings();
std::vector<Setting> nettest_settings();
std::vector<Setting> memory_log_settings();
std::vector<Setting> slurm_settings();
std::vector<Setting> sweep_settings();
std::vector<Setting> report_settings();
std::vector<Setting> tracker_settings();

}  // namespace tessera::declaring
