// Runs that cannot fit are refused before they touch memory.
#pragma once

#include "tessera/engine/plan.h"

namespace tessera {

// Plans the work and compares the plan's peak with the memory that this process may have, the control group's limit
// included. OutOfMemoryError tells both.
void check_memory(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work);

}  // namespace tessera
