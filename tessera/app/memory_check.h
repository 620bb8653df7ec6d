// Runs that cannot fit are refused before they touch memory.
#pragma once

#include "tessera/app/settings.h"
#include "tessera/engine/plan.h"

namespace tessera {

// The plan of a training run's rank: the engine's, and what saving takes beside it.
Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank);

// Plans the work and compares the plan's peak, as many times as this machine has ranks, with the memory that they may
// have (of a GPU what is free on it), the control group's limit included. OutOfMemoryError tells both.
void check_memory(const ModelConfig& config, const Settings& settings, const WorkBounds& work, const PlannedRank& rank,
                  int num_local_ranks, Device& device);

}  // namespace tessera
