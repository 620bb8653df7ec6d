// When `--max-restarts` starts ranks again: what counts as progress, and how long it waits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/settings/settings.h"

namespace tessera {

// The checkpoints of an output folder: their steps, and when each was completed.
using Checkpoints = std::map<int64_t, std::filesystem::file_time_type>;
Checkpoints checkpoints_in(const std::string& output_dir);  // none where the folder cannot be read
// Whether a run has completed a checkpoint between the two looks at its folder.
bool made_checkpoint(const Checkpoints& before, const Checkpoints& after);

// Seconds before a restart (1, 2, …): --restart-pause, doubled with each, up to the longer of it and 300 s.
double restart_pause_s(double first_s, int64_t restart);

// The arguments of a restart. A run that was to begin again, or from somewhere else, continues from what it has saved
// itself, if it `has_saved`.
std::vector<std::string> restart_arguments(std::vector<std::string> arguments, const Settings& settings,
                                           bool has_saved);

}  // namespace tessera
