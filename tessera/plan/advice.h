// Advice for a run that does not fit: the command of the fastest run that fits.
#pragma once

#include <string>

#include "tessera/plan/fit.h"

namespace tessera {

// Changes `request.settings` so that the run fits; nullopt if nothing fits. For training, returns the fastest
// configuration that find_fit() finds, with a smaller --eval-batch-size if necessary. For evaluation and generation,
// varies strategy, offload of parameters and eval_batch_size, and returns the first configuration that fits.
std::optional<Configuration> find_nearest_fit(FitRequest request);

// "Start the run with: tessera train … --offload optimizer:file # needs 11.5 GiB per rank". The text after the command
// is a shell comment. If nothing fits, returns other advice.
std::string advice(const FitRequest& request);

// The command, quoted for a shell, with `flags` (name and value) at its end. `flags` replace the command's flags of the
// same settings.
std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags);

}  // namespace tessera
