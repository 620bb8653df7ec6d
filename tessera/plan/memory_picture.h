// A picture of the planned memory over one training step.
#pragma once

#include <string>

#include "tessera/plan/plan_report.h"

namespace tessera {

// An SVG of report.step_memory, which must not be empty: what rank 0 holds on its device, by category, and below it
// what it holds on the host if it offloads. It needs no other file, and follows the reader's light or dark mode.
std::string memory_picture(const PlanReport& report);

}  // namespace tessera
