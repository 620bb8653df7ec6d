// What a run will need, found by running its largest step, evaluation and generation on the counting device.
#pragma once

#include "tessera/engine/engine.h"

namespace tessera {

struct Plan {
  Ledger ledger;  // bytes by phase and category, as the run's own ledger will have them
  int64_t num_parameters = 0;
  int64_t step_flops = 0;  // of one micro-batch, forward and backward; attention as if its sequences had equal lengths
};

Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work);

}  // namespace tessera
