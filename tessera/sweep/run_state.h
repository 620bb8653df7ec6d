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

// Looks at the files of the run: metrics.jsonl ends with a summary, summary.json exists, and resolved-config.toml has
// the same settings, except settings that do not affect a result (timeouts, presentation). Incomplete or unreadable
// files mean `open`: `tessera train` then reports what is wrong with them.
RunState state_of_run(const std::filesystem::path& folder, const ResolvedSettings& resolved);

// The last line of a log that begins with "error: ", after the byte `from`. Otherwise the last line that is not empty.
std::string last_error_in(const std::filesystem::path& log, uint64_t from);

}  // namespace tessera
