// The fastest configuration of a training run that fits into memory, found by planning each.
//
// Searched are strategy × offload × activation checkpointing × batch size, the latter with the accumulation that keeps
// batch_size × grad_accum, and so the results of the run. Which of two configurations is faster is the answer of a
// stated model, not a measurement: step_cost().
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/limits.h"
#include "tessera/plan/memory_check.h"
#include "tessera/report/record.h"

namespace tessera {

// Where a plan is furthest above its limits. Where it fits, what it leaves of the device's memory.
struct Excess {
  enum class Of { device, host, disk };
  int64_t bytes = 0;  // too many; not positive: it fits
  int64_t limit_bytes = 0;
  Of of = Of::device;
  // Of a memory, not of the disk:
  Phase phase = Phase::step;                 // the step where it is above the limit there, else the worst phase
  Category largest = Category::activations;  // the category with most bytes then
  int64_t largest_bytes = 0;
  bool fits() const { return bytes <= 0; }
};
Excess excess_of(const Plan& plan, const MemoryLimits& limits);

// Seconds of one step on a nominal machine, as if nothing overlapped. They order configurations and predict nothing.
struct StepCost {
  double compute_s = 0, communication_s = 0, offload_s = 0;
  double total_s() const { return compute_s + communication_s + offload_s; }
};
// `step_tokens` are those of a step, the same for all that are compared, however large their largest micro-batches.
StepCost step_cost(const Settings& settings, const Plan& plan, const WorkBounds& work, const PlannedRank& rank,
                   double step_tokens);
// The nominal machine of a device's kind and the formulas, for people and programs.
Record cost_model(DeviceKind device);

struct Configuration {
  Settings settings;
  Plan plan;  // of the first rank
  StepCost cost;
  Excess excess;
};
// {"strategy": …, "offload": …, "activation_checkpointing": …, "batch_size": …, "grad_accum": …}
Record searched_settings(const Settings& settings);
// The flags that make the one run the other, each with its value: "--batch-size" "2".
std::vector<std::pair<std::string, std::string>> flags_between(const Settings& from, const Settings& to);

struct FitRequest {
  ModelConfig config;
  Settings settings;            // where the search begins
  std::set<std::string> fixed;  // names of settings that stay as they are
  WorkOf work_of;
  PlannedRank rank;
  MemoryLimits limits;
};
struct FitResult {
  std::optional<Configuration> best;
  std::vector<Configuration> faster;  // that do not fit, the fastest first: of each row of the search one batch size
  std::optional<Configuration> smallest;  // where none fits: that with the least excess
};
// What the settings' own checks refuse is no configuration.
bool is_consistent(const Settings& settings, const PlannedRank& rank);
Configuration plan_configuration(const FitRequest& request, const Settings& settings, double step_tokens);
// UsageError where the fixed settings leave nothing to try.
FitResult find_fit(const FitRequest& request);

}  // namespace tessera
