// What to do about a run that does not fit: the fastest one that does, as a command.
#pragma once

#include <string>

#include "tessera/plan/fit.h"

namespace tessera {

// The configuration of a run that fits and is nearest to `request.settings`: of a training run the fastest that
// find_fit() finds, with a smaller --eval-batch-size where it takes one; of an evaluation or generation the first of
// --strategy, --offload of parameters and --eval-batch-size. None where nothing fits.
std::optional<Configuration> find_nearest_fit(FitRequest request);

// "Start it as: tessera train … --offload optimizer:file # which needs 11.5 GiB a rank", or what to do where nothing
// fits. What stands behind the command is a comment for a shell.
std::string advice(const FitRequest& request);

// This process's command with other flags, quoted for a shell: `flags` replace those of the same names.
std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags);

}  // namespace tessera
