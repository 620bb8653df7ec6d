// Finds the fastest configuration of a training run that fits into memory and on the disk.
//
// The candidates are combinations of strategy, offload, number of checkpointed blocks and batch size. grad_accum
// changes with the batch size: batch_size × grad_accum stays constant, so the results of the run do not change. If
// batch_tokens is set, the search changes neither batch_tokens nor batch_size. For each strategy and offload, the
// search bisects over batch sizes and over numbers of checkpointed blocks. It makes a plan for each configuration that
// it tries. A cost model (step_cost()), not a measurement, decides which configuration is faster.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/plan/limits.h"
#include "tessera/plan/memory_check.h"

namespace tessera {

// The limit that a plan exceeds by the most bytes. If the plan fits, this is the limit of the device, and `bytes` is
// the number of bytes that stay free, as a negative number.
struct Excess {
  enum class Of { device, host, disk };
  int64_t bytes = 0;  // above the limit; zero or negative if the plan fits
  int64_t limit_bytes = 0;
  Of of = Of::device;
  // Only for device and host memory:
  Phase phase = Phase::step;  // Phase::step if this phase exceeds the limit, else the phase with the highest peak
  Category largest = Category::activations;  // the category with the most bytes in `phase`
  int64_t largest_bytes = 0;
  bool fits() const { return bytes <= 0; }
};
Excess excess_of(const Plan& plan, const MemoryLimits& limits);

// Estimated seconds of one step on a nominal machine, whose speeds are constants (cost_model()). The estimate assumes
// that computation, communication and offload do not overlap. Use these values only to compare configurations.
struct StepCost {
  double compute_s = 0, communication_s = 0, offload_s = 0;
  double total_s() const { return compute_s + communication_s + offload_s; }
};
// `step_tokens` is the number of tokens of a step. It must be the same for all compared configurations.
StepCost step_cost(const Settings& settings, const Plan& plan, const WorkBounds& work, const PlannedRank& rank,
                   double step_tokens);
// The speeds of the nominal machine for a kind of device, and the formulas of the cost model.
Record cost_model(DeviceKind device);

struct Configuration {
  Settings settings;
  Plan plan;  // of rank 0
  StepCost cost;
  Excess excess;
};
// The names of the settings that find_fit() may change.
const std::vector<std::string>& searched_names();
// {"strategy": …, "offload": …, "activation_checkpointing": …, "batch_size": …, "grad_accum": …}
Record searched_settings(const Settings& settings);
// The flags and values that change `from` into `to`, for example {"--batch-size", "2"}.
std::vector<std::pair<std::string, std::string>> flags_between(const Settings& from, const Settings& to);

struct FitRequest {
  ModelConfig config;
  Settings settings;            // the search starts from these settings
  std::set<std::string> fixed;  // names of settings that the search must not change
  WorkOf work_of;
  PlannedRank rank;
  MemoryLimits limits;
};
struct FitResult {
  std::optional<Configuration> best;
  // Configurations that do not fit, the fastest first. If `best` exists, the list has only configurations that are
  // faster than `best`. Each combination of strategy, offload and number of checkpointed blocks appears at most once.
  // Its batch size is the smallest one that the search tried and that does not fit. If `fixed` lacks
  // activation_checkpointing, the list has only configurations with no or all blocks checkpointed.
  std::vector<Configuration> faster;
  std::optional<Configuration> smallest;  // if nothing fits: the configuration of `faster` with the fewest excess.bytes
};
Configuration plan_configuration(const FitRequest& request, const Settings& settings, double step_tokens);
// Searches the candidates. Throws UsageError if the fixed settings exclude every configuration.
FitResult find_fit(const FitRequest& request);

}  // namespace tessera
