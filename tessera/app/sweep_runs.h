// Finds the runs of a sweep, and checks their settings.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/verbs.h"
#include "tessera/sweep/expand.h"

namespace tessera {

// Returns the runs of the sweep at the path `file` (a sweep file, or a folder of recipes). Checks the settings of every
// run as `tessera train` does. `flags` apply to every run. If `on_this_machine` is true, also checks that this build
// and this machine support the settings. Throws UsageError if the path is empty, or if the sweep or a setting is
// invalid.
std::vector<SweepRun> runs_of_sweep(const std::string& file, const RunFlags& flags, const Environment& environment,
                                    bool on_this_machine);

}  // namespace tessera
