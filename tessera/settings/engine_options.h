// What settings mean for the engine.
#pragma once

#include "tessera/engine/engine.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Whether a run uses GPUs: by --device, or because the machine has one.
bool uses_cuda(const Settings& settings);

// The options of the engine: the same for a run and for its plan.
EngineOptions engine_options(const Settings& settings);

}  // namespace tessera
