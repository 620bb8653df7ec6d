// The state of a run, as its output folder shows it.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/settings/resolve.h"

namespace tessera {

enum class RunState {
  open,    // not finished with these settings: `tessera train` starts or resumes it
  done,    // finished with these settings
  in_use,  // another process works in the folder
};

// Looks at the files of the run. A run is `done` if metrics.jsonl ends with a summary, summary.json exists, and
// resolved-config.toml has the same settings, except settings that do not affect a result (timeouts, presentation). If
// files are incomplete or unreadable, the run is `open`, and `tessera train` reports what is wrong with them.
RunState state_of_run(const std::filesystem::path& folder, const ResolvedSettings& resolved);

// Returns the last error in a log, without its "error: ". Ignores the bytes before `from`. If no line begins with
// "error: ", returns the last line that is not empty. Reads at most the last 64 KiB.
std::string last_error_in(const std::filesystem::path& log, uint64_t from);

}  // namespace tessera
