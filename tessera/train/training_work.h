// The sizes of a run's batches, for its engine and for plans.
#pragma once

#include "tessera/engine/engine.h"
#include "tessera/load/datasets.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Upper bounds of the batches that the engine computes. A run and its plan use the same bounds. `eval` may be null.
// `fused`: the engine computes the micro-batches of a step as one batch.
WorkBounds training_work(const Settings& settings, const Dataset& train, const Dataset* eval, bool fused = false);
// The mean sizes of a rank's micro-batches instead of the largest ones, for predicted times.
WorkBounds typical_work(const Settings& settings, const Dataset& train, const Dataset* eval, int64_t world_size,
                        bool fused = false);

}  // namespace tessera
