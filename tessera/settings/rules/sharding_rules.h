// The rules about sharding and offload, for a search that tries many settings.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/option_names.h"
#include "tessera/settings/settings.h"

namespace tessera {

// What the strategy, the offload or the groups of ranks contradict, or nothing.
std::optional<Fault> fault_of_sharding(const Settings& settings, int64_t num_ranks, int64_t ranks_per_node);

}  // namespace tessera
