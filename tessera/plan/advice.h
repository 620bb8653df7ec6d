// Advice for a run that does not fit: the command of the fastest run that fits.
#pragma once

#include <string>

#include "tessera/plan/fit.h"

namespace tessera {

// The configuration nearest to `request.settings` that fits; nullopt if nothing fits. Training: the fastest one that
// find_fit() finds, with a smaller --eval-batch-size if necessary. Evaluation and generation: the first one that fits,
// with another --strategy, --offload of parameters, or --eval-batch-size.
std::optional<Configuration> find_nearest_fit(FitRequest request);

// "Start it as: tessera train … --offload optimizer:file # needs 11.5 GiB per rank". The text after the command is a
// shell comment. If nothing fits, returns other advice.
std::string advice(const FitRequest& request);

// The command, quoted for a shell, with `flags` (name and value) at its end. They replace flags of the same settings.
std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags);

}  // namespace tessera
