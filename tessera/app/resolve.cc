#include "tessera/app/resolve.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/app/suggest.h"
#include "tessera/base/error.h"

namespace tessera {

namespace {

std::vector<std::string> names_and_aliases() {
  std::vector<std::string> names;
  for (const auto& setting : all_settings()) {
    names.push_back(setting.name);
    names.insert(names.end(), setting.aliases.begin(), setting.aliases.end());
  }
  return names;
}

void apply_file(const SettingSources& sources, const std::string& verb, const std::vector<std::string>& verb_names,
                ResolvedSettings& resolved) {
  std::map<std::pair<std::string, std::string>, int> seen;  // (table, setting) → line: an alias beside its setting
  for (const auto& entry : sources.file) {
    const std::string place = fmt::format("{}:{}", sources.file_name, entry.line);
    const std::string where = fmt::format("{}: {}", place, entry.key);
    if (!entry.table.empty() && std::find(verb_names.begin(), verb_names.end(), entry.table) == verb_names.end()) {
      throw UsageError(fmt::format("{}: [{}]", place, entry.table), "is no verb, and only verbs have tables",
                       did_you_mean(entry.table, verb_names));
    }
    const Setting* setting = find_setting(entry.key);
    if (!setting) throw UsageError(where, "unknown setting", did_you_mean(underscored(entry.key), names_and_aliases()));
    const auto [earlier, is_new] = seen.insert({{entry.table, setting->name}, entry.line});
    if (!is_new) throw UsageError(where, fmt::format("is given twice, first in line {}", earlier->second));
    const SettingValue value = checked_value(*setting, entry.value, where);
    if (!(setting->group & resolved.groups) || (!entry.table.empty() && entry.table != verb)) continue;
    setting->set(resolved.settings, value);
    resolved.origins[setting->name] = {Origin::Kind::file, place};
  }
}

void apply_environment(const Environment& environment, ResolvedSettings& resolved) {
  std::vector<std::string> variables;
  for (const auto& setting : all_settings()) variables.push_back(setting.environment_variable());
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with("TESSERA_")) continue;
    const auto it = std::find(variables.begin(), variables.end(), variable);
    if (it == variables.end()) {
      const std::string remedy = did_you_mean(variable, variables);
      resolved.warnings.push_back(
          fmt::format("{}: is no setting and is ignored{}{}", variable, remedy.empty() ? "" : ". ", remedy));
      continue;
    }
    const Setting& setting = all_settings()[static_cast<size_t>(it - variables.begin())];
    if (!(setting.group & resolved.groups)) continue;
    setting.set(resolved.settings, parse_value(setting, text, variable));
    resolved.origins[setting.name] = {Origin::Kind::environment, variable};
  }
}

}  // namespace

std::string Origin::to_string() const {
  switch (kind) {
    case Kind::preset:
      return "default";
    case Kind::file:
      return place;
    case Kind::environment:
      return "environment " + place;
    case Kind::flag:
      return "flag " + place;
  }
  return "";
}

std::string ResolvedSettings::where(const std::string& name) const {
  const auto it = origins.find(name);
  if (it == origins.end() || it->second.kind == Origin::Kind::preset) return find_setting(name)->flag();
  return it->second.kind == Origin::Kind::file ? fmt::format("{}: {}", it->second.place, name) : it->second.place;
}

bool ResolvedSettings::is_given(const std::string& name) const {
  const auto it = origins.find(name);
  return it != origins.end() && it->second.kind != Origin::Kind::preset;
}

ResolvedSettings resolve(const SettingSources& sources, Groups groups, const std::string& verb,
                         const std::vector<std::string>& verb_names) {
  ResolvedSettings resolved;
  resolved.groups = groups;
  resolved.num_ranks = sources.num_ranks;
  for (const Setting* setting : settings_of(groups)) resolved.origins[setting->name] = {};
  apply_file(sources, verb, verb_names, resolved);
  apply_environment(sources.environment, resolved);
  for (const auto& [setting, text] : sources.flags) {
    setting->set(resolved.settings, parse_value(*setting, text, setting->flag()));
    resolved.origins[setting->name] = {Origin::Kind::flag, setting->flag()};
  }
  return resolved;
}

}  // namespace tessera
