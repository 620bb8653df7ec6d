// What a training run was planned to need, for the comparison with what it measures.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/base/record.h"
#include "tessera/engine/step_time.h"
#include "tessera/plan/memory_check.h"

namespace tessera {

struct PlannedCosts {
  Plan plan;                     // of the first rank
  std::optional<StepTime> time;  // empty: the speeds of the machine are not known
  std::string machine, source;   // whose time it is, and where its speeds come from
  // Whether the time is exact enough to call a run slow. Times from a data sheet are not.
  bool has_measured_time() const { return time && source == "measured"; }
};

// `largest` and `typical`: the bounds and the mean sizes of the run's micro-batches. If `typical` is null, no time is
// predicted.
PlannedCosts planned_costs(const ModelConfig& config, const Settings& settings, const WorkBounds& largest,
                           const std::function<WorkBounds()>& typical, const PlannedRank& rank);

// The object `planned` of summary.json.
Record record_of(const PlannedCosts& planned);

}  // namespace tessera
