// Makes a model folder from a training checkpoint, or from a model and an adapter.
#pragma once

#include <string>

#include "tessera/log/console.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Writes the model or the adapter that the settings of `export` name to the output folder. Prints notes. Returns what
// was exported: "exported: the model of step 60". Throws UsageError, InputError and RunError.
std::string export_model(Settings settings, Console& console);

}  // namespace tessera
