// The options of an adapter that follow from settings.
#pragma once

#include <optional>

#include "tessera/model/adapter.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The adapter of --adapter lora, or nullopt. Throws UsageError if the text of a setting has the wrong form.
std::optional<AdapterOptions> adapter_options(const Settings& settings);

}  // namespace tessera
