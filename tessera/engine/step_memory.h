// The memory of a rank over one training step: the engine runs on counting devices, and its ledgers and its activation
// stack are watched.
#pragma once

#include <array>
#include <vector>

#include "tessera/engine/plan.h"
#include "tessera/engine/step_parts.h"

namespace tessera {

struct Machine;

struct StepMemory {
  using Bytes = std::array<int64_t, kNumCategories>;
  struct Point {
    double at = 0;        // seconds since the step began; without a machine, the number of changes before this one
    Bytes device, host;   // booked in the ledgers
    int64_t stack_bytes;  // in use of the activations on the device; the rest is free at this time
  };
  std::vector<Point> points;  // holds until the next point
  struct Part {
    double at = 0;
    StepPart part;
  };
  std::vector<Part> parts;  // in order; with several micro-batches, forward and backward repeat
  double end = 0;           // `at` of the next step's begin
  bool timed = false;       // `at` is in seconds
  int64_t micro_batches = 1;
};

// `work` has the largest micro-batches, as for plan_run(). The step is not the first one, so everything has settled
// that adapts to earlier steps. It has at most two micro-batches: more of them repeat the second one. `machine`: whose
// time the step takes, or null.
StepMemory step_memory(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work,
                       const PlannedRank& rank, const HeldBeside& beside, const Machine* machine);

}  // namespace tessera
