// Makes a model folder from a training checkpoint, or from a model and an adapter.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/log/console.h"
#include "tessera/settings/settings.h"

namespace tessera {

struct Exported {
  std::filesystem::path path;  // of the folder or the GGUF file
  std::string what;            // "the model of step 60"
};

// Writes the model or the adapter that the settings of `export` name to the output folder. Prints notes. Throws
// UsageError, InputError and RunError.
Exported export_model(Settings settings, Console& console);

}  // namespace tessera
