// Restarts for `--max-restarts`: what counts as progress, how long the launcher waits before a restart, and the
// arguments of a restart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/settings/settings.h"

namespace tessera {

// The complete checkpoints of an output folder: step -> modification time of the checkpoint's folder.
using Checkpoints = std::map<int64_t, std::filesystem::file_time_type>;
Checkpoints checkpoints_in(const std::string& output_dir);  // empty if the folder cannot be read
// Whether a run completed a checkpoint between two states of its output folder.
bool made_checkpoint(const Checkpoints& before, const Checkpoints& after);

// The pause before restart number `restart` (1, 2, …), in seconds. It starts with `first_s` and doubles with each
// restart. The maximum is 300 s, or first_s if that is longer.
double restart_pause_s(double first_s, int64_t restart);

// The arguments of a restart. `has_saved`: the run has completed a checkpoint. The restart then continues from the
// newest checkpoint of the output folder, and ignores the run's --resume.
std::vector<std::string> restart_arguments(std::vector<std::string> arguments, const Settings& settings,
                                           bool has_saved);

}  // namespace tessera
