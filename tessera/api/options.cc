#include "tessera/api/options.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/settings/config_file.h"
#include "tessera/settings/verb_groups.h"
#include "tessera/train/auto_precision.h"

namespace tessera::v0 {

namespace {

SettingValue setting_value(const OptionValue& value) {
  return std::visit([](const auto& v) -> SettingValue { return v; }, value.variant());
}

// Refuses what only the program `tessera` does around a run.
void check_one_process(const ResolvedSettings& resolved) {
  const Settings& s = resolved.settings;
  const auto refuse = [&](const char* name, const std::string& what) {
    throw UsageError(resolved.where(name), what, "Start the run with the program tessera");
  };
  if (s.nproc > 1) refuse("nproc", "the library computes in this process, and starts no ranks");
  if (s.max_restarts > 0) refuse("max_restarts", "the library starts no processes again");
  if (s.preflight != Settings::Preflight::none) refuse("preflight", "the library computes in one process");
}

ResolvedSettings checked_options(const Options& options, Groups groups, const std::string& verb,
                                 const std::vector<std::string>& required, Console& console) {
  SettingSources sources;
  if (!options.config_file().empty()) sources.file = read_config_file(options.config_file());
  sources.options.emplace();
  for (const Options::Entry& entry : options.entries()) {
    sources.options->emplace_back(entry.name, setting_value(entry.value));
  }
  ResolvedSettings resolved = resolve(sources, groups, verb, names_of_verbs());
  for (const std::string& warning : resolved.warnings) console.note("warning: " + warning);
  check_consistent(resolved);
  check_supported(resolved);
  for (const std::string& name : required) {
    if (resolved.is_given(name) && !plain_text(find_setting(name)->get(resolved.settings)).empty()) continue;
    throw UsageError(resolved.where(name), fmt::format("is required by {}", verb));
  }
  return resolved;
}

}  // namespace

ResolvedSettings resolved_options(const Options& options, Groups groups, const std::string& verb,
                                  const std::vector<std::string>& required, Console& console) {
  ResolvedSettings resolved = checked_options(options, groups, verb, required, console);
  check_one_process(resolved);
  settle_precision(resolved, nullptr);
  return resolved;
}

ResolvedSettings options_of_plan(const Options& options, Console& console) {
  ResolvedSettings resolved = checked_options(options, kPlanVerb, "plan", {"model"}, console);
  for (const char* name : {"svg", "compare"}) {
    if (!resolved.is_given(name)) continue;
    throw UsageError(resolved.where(name), "is for the program: plan() writes no files and prints nothing",
                     "Remove it, and use the result of plan()");
  }
  return resolved;
}

}  // namespace tessera::v0
