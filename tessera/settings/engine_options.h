// Converts settings to options of the engine.
#pragma once

#include "tessera/engine/engine.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Whether a run uses GPUs: --device is cuda, or --device is auto and this program finds a GPU that it can use.
bool uses_cuda(const Settings& settings);

// Whether a run on a GPU pins the host memory of offloaded data.
bool pins_host_memory(const Settings& settings);

// The engine's options. A run and its plan use the same options.
EngineOptions engine_options(const Settings& settings);

}  // namespace tessera
