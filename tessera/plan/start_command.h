// Commands to copy: this process's own command with other settings.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/memory_check.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// The arguments of this process's command. Empty if the system does not show them. "…" in a library (base/library.h).
std::vector<std::string> own_command();

// Returns the command, quoted for a shell, with `flags` at its end. Each element of `flags` is a flag ("--lr") and its
// value. Leaves out the command's own flags for these settings and for the settings `dropped`.
std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags,
                         const std::set<std::string>& dropped = {});

// The command that starts a planned run.
struct StartCommand {
  std::string text;                       // tessera train …
  std::vector<std::string> placeholders;  // "DATA: a file with training data": words in `text` that the user replaces
};

// Makes the command from this process's own command, `tessera plan …`, and from the settings `found` by find_fit().
// `fixed`: names of the settings that find_fit() did not change. If the ranks need several nodes, the command begins
// with mpirun.
StartCommand start_command(const ResolvedSettings& resolved, const std::set<std::string>& fixed, const Settings& found,
                           const PlannedRank& rank);

// The command of a plan that finds settings for a run that does not fit: this process's own command with --fit.
std::string fit_command(const ResolvedSettings& resolved);

}  // namespace tessera
