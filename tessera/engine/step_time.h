// The time of a run's steps, from a simulation: the engine runs on counting devices with a timeline.
#pragma once

#include <array>
#include <map>
#include <string>

#include "tessera/device/counting/timeline.h"
#include "tessera/engine/plan.h"
#include "tessera/engine/step_parts.h"

namespace tessera {

struct StepTime {
  double step_s = 0;  // from step to step, without logs, evaluations and saves
  PartSeconds part_s{};
  std::array<double, kNumBusy> busy_s{};   // of a step; several may be busy at the same time
  std::map<std::string, double> kernel_s;  // of a step on a GPU, by kernel
  double evaluation_s = 0;                 // of one batch of the evaluation

  // What is busy for the largest share of a step.
  Busy bound() const;
};

// `work` has the sizes of a typical micro-batch, not the largest ones: of training and evaluation. micro_batches may be
// any number. The simulation runs a few steps, until their times repeat.
StepTime step_time(const ModelConfig& config, const EngineOptions& options, WorkBounds work, const PlannedRank& rank,
                   const Machine& machine);

}  // namespace tessera
