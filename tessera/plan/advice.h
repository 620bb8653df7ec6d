// Advice for a run that does not fit into memory: a command that makes it fit.
#pragma once

#include <string>

#include "tessera/plan/fit.h"

namespace tessera {

// Returns a configuration with which the run of `request.settings` fits, or nullopt. For training, returns the fastest
// configuration that find_fit() finds. If it finds none, tries smaller values of --eval-batch-size. For evaluation
// and generation, varies the strategy, the offload of parameters and --eval-batch-size, and returns the first
// configuration that fits.
std::optional<Configuration> find_nearest_fit(FitRequest request);

// "Start the run with: tessera train … --offload optimizer:file # needs 11.5 GiB per rank". The text after the command
// is a shell comment. If only the disk is too small, also names the necessary disk space. If nothing fits, advises a
// smaller run.
std::string advice(const FitRequest& request);

}  // namespace tessera
