// How the declarations of settings are written: one call a setting. Included by the files of declarations alone.
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

constexpr double kMaxCount = 2147483647;  // counts fit an int wherever they are used
constexpr double kMaxSeed = 9.2e18;       // below 2^63
constexpr Range kCount{0, kMaxCount};     // 0 has a meaning of its own, told in the help
constexpr Range kPositive{1, kMaxCount};
constexpr Range kNonNegativeReal{.min = 0};
constexpr Range kUnitInterval{.min = 0, .max = 1};
constexpr Range kBelowOne{.min = 0, .max = 1, .open_max = true};

template <typename T>
Setting declare(const char* name, T S::*field, Group group, SettingType type, const char* unit, const char* help) {
  return {.name = name,
          .group = group,
          .type = type,
          .unit = unit,
          .help = help,
          .get = [field](const S& s) { return SettingValue(s.*field); },
          .set = [field](S& s, const SettingValue& value) { s.*field = std::get<T>(value); }};
}

inline Setting text(const char* name, std::string S::*field, Group group, const char* unit, const char* help,
                    Names aliases = {}) {
  Setting setting = declare(name, field, group, SettingType::text, unit, help);
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting boolean(const char* name, bool S::*field, Group group, const char* help, Names aliases = {}) {
  Setting setting = declare(name, field, group, SettingType::boolean, "", help);
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting integer(const char* name, int64_t S::*field, Group group, const char* unit, Range range,
                       const char* help, Names aliases = {}) {
  Setting setting = declare(name, field, group, SettingType::integer, unit, help);
  setting.range = range;
  setting.aliases = std::move(aliases);
  return setting;
}

inline Setting real(const char* name, double S::*field, Group group, const char* unit, Range range, const char* help,
                    Names aliases = {}) {
  Setting setting = declare(name, field, group, SettingType::real, unit, help);
  setting.range = range;
  setting.aliases = std::move(aliases);
  return setting;
}

// An amount of bytes; outside of the struct it is canonical text.
inline Setting bytes(const char* name, int64_t S::*field, Group group, Range range, const char* help) {
  return {
      .name = name,
      .group = group,
      .type = SettingType::bytes,
      .unit = "BYTES",
      .help = help,
      .range = range,
      .get = [field](const S& s) { return SettingValue(bytes_text(s.*field)); },
      .set = [field](S& s, const SettingValue& value) { s.*field = parse_bytes(std::get<std::string>(value), ""); }};
}

template <typename E>
Setting choice(const char* name, E S::*field, Group group, std::vector<std::pair<const char*, E>> words,
               const char* help, Names aliases = {}) {
  Setting setting{
      .name = name, .aliases = std::move(aliases), .group = group, .type = SettingType::choice, .help = help};
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

// Declared in files of their own.
std::vector<Setting> sharding_settings();
std::vector<Setting> report_settings();

}  // namespace tessera::declaring
