// Reports a plan as a table and as a record.
#pragma once

#include "tessera/data/data_use.h"
#include "tessera/plan/fit.h"
#include "tessera/report/console.h"

namespace tessera {

// The results of `tessera plan`.
struct PlanReport {
  Settings settings;  // the planned settings; with --fit the best configuration
  PlannedRank rank;
  WorkBounds work;
  bool fused = false;         // the micro-batches of a step run as one
  Plan first;                 // of rank 0
  std::optional<Plan> other;  // of every other rank, if there is more than one rank
  MemoryLimits limits;        // of a rank
  std::optional<FitResult> fit;
  std::optional<DataUse> train_data, eval_data;

  bool ranks_differ() const;
  // Bytes of host memory that a rank with this plan pins, if the system allows so much.
  int64_t pinned_bytes(const Plan& plan) const;
};

Record plan_record(const PlanReport& report);
void print_plan(const PlanReport& report, Console& console);

}  // namespace tessera
