#include "tessera/sweep/run_state.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/settings/config_file.h"
#include "tessera/store/folder_owner.h"
#include "tessera/store/output_lock.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The end of a file, at most `longest` bytes. Empty if the file cannot be read.
std::string end_of(const fs::path& path, uint64_t longest) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(0, file.tellg()));
  std::string text(std::min(size, longest), '\0');
  file.seekg(static_cast<std::streamoff>(size - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

// Whether the last record of metrics.jsonl is complete and is a summary. A run that starts again removes this record.
bool has_ended(const fs::path& metrics) {
  std::string text = end_of(metrics, 64 * 1024);
  if (!text.ends_with('\n')) return false;
  text.pop_back();
  const nlohmann::json record = nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);
  return record.is_object() && record.value("kind", nlohmann::json()) == "summary";
}

// Whether a finished run stays RunState::done if the sweep now has another value for this setting. memory_log and
// preflight may differ, because Slurm jobs add their own values for both settings.
bool may_differ(const Setting& setting) {
  constexpr std::string_view kNames[] = {"output_dir", "resume",    "overwrite",          "owner_timeout",
                                         "memory_log", "preflight", "preflight_min_busbw"};
  const bool is_wait = setting.group == kRanks && setting.name != "nproc";
  return is_wait || setting.group == kPresentation || setting.stands_for_others ||
         std::ranges::find(kNames, setting.name) != std::end(kNames);
}

// Whether the setting has the value `auto`, which a run replaces before it writes resolved-config.toml.
bool is_settled_by_the_run(const Setting& setting, const Settings& settings) {
  return setting.name == "precision" && settings.precision == Settings::Precision::automatic;
}

// Whether `file`, the resolved-config.toml of a run, has these settings. A setting that is not in the file has its
// default.
bool has_settings(const fs::path& file, const ResolvedSettings& resolved) {
  Settings then;
  try {
    for (const FileEntry& entry : read_config_file(file.string())) {
      const Setting* setting = entry.table.empty() ? find_setting(entry.key) : nullptr;
      if (setting) setting->set(then, checked_value(*setting, entry.value, file.string()));
    }
  } catch (const UsageError&) {
    return false;
  }
  return std::ranges::all_of(settings_of(resolved.groups), [&](const Setting* setting) {
    return may_differ(*setting) || is_settled_by_the_run(*setting, resolved.settings) ||
           toml_text(setting->get(then)) == toml_text(setting->get(resolved.settings));
  });
}

}  // namespace

RunState state_of_run(const fs::path& folder, const ResolvedSettings& resolved) {
  const fs::path lock = folder / OutputLock::kFileName;
  if (const auto owner = read_owner_file(lock)) {
    if (OwnerWatch().look(*owner) == OwnerWatch::Verdict::alive) return RunState::in_use;
  }
  std::error_code none;
  const bool is_done = fs::exists(folder / "summary.json", none) && has_ended(folder / "metrics.jsonl") &&
                       has_settings(folder / "resolved-config.toml", resolved);
  return is_done ? RunState::done : RunState::open;
}

std::string last_error_in(const fs::path& log, uint64_t from) {
  std::error_code none;
  const uintmax_t size = fs::file_size(log, none);
  if (none || size <= from) return "";
  const std::string text = end_of(log, std::min<uint64_t>(size - from, 64 * 1024));
  std::string last, error;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (!line.empty()) last = line;
    if (line.starts_with("error: ")) error = line.substr(7);
    begin = end + 1;
  }
  return printable(error.empty() ? last : error, 2000);
}

}  // namespace tessera
