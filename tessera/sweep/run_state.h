// Finds the state of a run from the files in its output folder.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/settings/resolve.h"

namespace tessera {

enum class RunState {
  open,    // not finished with the given settings: `tessera train` starts or resumes the run
  done,    // finished with the given settings
  in_use,  // another process works in the folder
};

// Reads the files of the run in `folder`. If no process works in the folder, the run is `done` if metrics.jsonl ends
// with a summary, summary.json exists, and resolved-config.toml has the settings `resolved`. Settings that do not
// affect a result, such as timeouts, may differ. If files are incomplete or unreadable, the run is `open`, and
// `tessera train` reports what is wrong with the files.
RunState state_of_run(const std::filesystem::path& folder, const ResolvedSettings& resolved);

// In the file `log`, finds the last line that begins with "error: ". Returns this line without "error: ". If no line
// begins like this, returns the last line that is not empty. Ignores the first `from` bytes of the file. Reads at most
// the last 64 KiB.
std::string last_error_in(const std::filesystem::path& log, uint64_t from);

}  // namespace tessera
