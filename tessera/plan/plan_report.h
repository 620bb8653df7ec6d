// A plan for people and for programs.
#pragma once

#include "tessera/data/data_use.h"
#include "tessera/plan/fit.h"
#include "tessera/report/console.h"

namespace tessera {

// What `tessera plan` has found out.
struct PlanReport {
  Settings settings;  // as planned: with --fit the configuration found
  PlannedRank rank;
  WorkBounds work;
  bool fused = false;         // the micro-batches of a step run as one
  Plan first;                 // of the world's first rank, which collects the model at the end
  std::optional<Plan> other;  // of each of the others, if there are any
  MemoryLimits limits;        // nothing known: no limits
  std::optional<FitResult> fit;
  std::optional<DataUse> train_data, eval_data;

  bool ranks_differ() const;
  // Locked memory of a rank's host tier.
  int64_t pinned_bytes(const Plan& plan) const;
};

Record plan_record(const PlanReport& report);
void print_plan(const PlanReport& report, Console& console);

}  // namespace tessera
