// Prints a plan for people. plan_record() has the same values, and more.
#pragma once

#include "tessera/log/console.h"
#include "tessera/plan/plan_report.h"

namespace tessera {

// Prints the verdict first: whether the run fits, how much is left or missing, and how long it takes.
void print_plan(const PlanReport& report, Console& console);

}  // namespace tessera
