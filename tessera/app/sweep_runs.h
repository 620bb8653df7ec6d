// The runs of a sweep, as the command line names it.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/sweep/expand.h"

namespace tessera {

// Reads the sweep `file` and checks every run as `tessera train` does; without `on_this_machine`, whether this machine
// supports it does not count. `flags` apply to every run. Throws UsageError.
std::vector<SweepRun> runs_of_sweep(const std::string& file, const RunFlags& flags, const Environment& environment,
                                    bool on_this_machine);

}  // namespace tessera
