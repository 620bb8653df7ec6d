// The results of a plan, and their record.
#pragma once

#include "tessera/data/batches.h"
#include "tessera/data/data_use.h"
#include "tessera/engine/step_memory.h"
#include "tessera/engine/step_time.h"
#include "tessera/plan/fit.h"
#include "tessera/plan/start_command.h"

namespace tessera {

// The results of `tessera plan`.
struct PlanReport {
  Settings settings;  // the planned settings; with --fit, those of the best configuration
  PlannedRank rank;
  WorkBounds work;                        // the largest micro-batches
  WorkBounds typical;                     // mean micro-batches, for predicted times
  bool fused = false;                     // the micro-batches of a step run as one micro-batch
  Plan first;                             // of rank 0
  std::optional<Plan> other;              // of each rank except rank 0, if there are several ranks
  std::optional<Machine> machine;         // to predict times for; empty: its speeds are not known
  std::string unknown_speeds;             // the speeds that are not known: "links between nodes"
  std::optional<StepTime> time;           // if all speeds are known
  std::optional<StepMemory> step_memory;  // of rank 0, if the settings ask for a picture
  MemoryLimits limits;                    // of each rank
  std::optional<FitResult> fit;
  Machine assumed_machine;  // of the search
  StartCommand start;       // with --fit: starts the best configuration
  std::string to_find_fit;  // without --fit: the command of a plan that searches for a configuration
  std::optional<DataUse> train_data, eval_data;
  std::optional<Fill> fill;  // with --batch-tokens and data

  bool ranks_differ() const;
  bool has_time() const { return time && time->step_s > 0; }
  std::string precision() const;
  double step_flops() const, step_tokens() const;  // step_tokens: of all ranks, in a step of mean size
  double steps_per_epoch() const;                  // 0: without data
  double evaluation_s() const;                     // of all evaluation data, without generation; 0: not known
  double checkpoint_s() const;                     // all ranks write their parts at the same time; 0: not known
  Excess excess() const { return excess_of(first, limits); }
  // Bytes of host memory that a rank with this plan pins. The system may allow less.
  int64_t pinned_bytes(const Plan& plan) const;
};

// "no_shard, offload none, activation checkpointing none, 4 x 1 samples"
std::string summary_of(const Settings& settings);

// Throws OutOfMemoryError: what the smallest configuration lacks.
[[noreturn]] void refuse_to_fit(const FitResult& fit, const MemoryLimits& limits, const Settings& given);

Record plan_record(const PlanReport& report);

}  // namespace tessera
