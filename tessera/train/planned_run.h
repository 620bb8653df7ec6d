// The plan of a training run: its memory, computation and communication, predicted from its settings.
#pragma once

#include "tessera/log/console.h"
#include "tessera/plan/plan_report.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// Plans the run with these settings. With --fit, finds the fastest settings that fit. Prints notes about the model and
// the data, but not the plan. Throws UsageError, InputError, and OutOfMemoryError if --fit finds nothing.
PlanReport plan_of_run(const ResolvedSettings& given, Console& console);

}  // namespace tessera
