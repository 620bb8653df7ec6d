// Finds the fastest configuration of a training run that fits into memory and on the disk.
//
// A configuration is a strategy, what is offloaded and how much of it, what is recomputed in backward, and a batch
// size. grad_accum changes with the batch size: batch_size × grad_accum stays constant, so the results of the run do
// not change. If batch_tokens is set, the search changes neither batch_tokens nor batch_size.
//
// The search plans each configuration to the byte, and simulates its step (engine/step_time.h). Configurations with the
// same strategy, batch size and offloaded kinds form a family. Within a family, more offload and more recomputation
// need less memory and more time. For each amount of recomputation, the search therefore takes the least offload that
// fits. The fastest member of a family offloads and recomputes nothing. If even this member is slower than the best
// configuration so far, the search leaves out the family.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/engine/step_time.h"
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

struct Configuration {
  Settings settings;
  Plan plan;  // of rank 0
  Excess excess;
  StepTime time{};
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
  std::set<std::string> fixed;  // names of settings that the search must not change, except `auto` in their values
  WorkOf work_of;               // the largest micro-batches
  WorkOf typical_of;            // mean micro-batches, for the times
  PlannedRank rank;
  MemoryLimits limits;
  Machine machine;
  // The same with the micro-batches of a step as one, as a GPU runs them if the memory suffices. Empty if the run does
  // not fuse them; nullopt if they are too large for the kernels.
  std::function<std::optional<WorkBounds>(const Settings&)> fused_of{};
  WorkOf fused_typical_of{};
};
struct FitResult {
  std::optional<Configuration> best;
  std::vector<Configuration> runners_up;  // the best ones of other families, the fastest first, up to 3 times slower
  std::optional<Configuration> with_next_gib;  // if faster than `best`: the best one with 1 GiB more memory per device
  std::optional<Configuration> smallest;       // if nothing fits: the configuration with the fewest excess.bytes
  int num_plans = 0, num_simulations = 0;
};
// The plan of a configuration, without its time.
Configuration plan_configuration(const FitRequest& request, const Settings& settings);
// Searches the configurations. Throws UsageError if the fixed settings exclude all of them.
FitResult find_fit(const FitRequest& request);

// Whether a setting leaves its value to the search: `auto` in --offload or --activation-checkpointing.
bool has_automatic(const Settings& settings);
// Whether a run with these settings begins with a search: with --fit, or if has_automatic().
bool has_search(const Settings& settings);

}  // namespace tessera
