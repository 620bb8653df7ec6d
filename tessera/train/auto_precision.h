// What `--precision auto` means on the devices of a run.
#pragma once

#include <string>
#include <vector>

#include "tessera/comm/world.h"
#include "tessera/session/worker.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// The devices of a run, as far as they decide the precision.
struct RunDevices {
  bool on_gpus = false;
  std::string without_bf16;  // the name of a GPU that has no bf16; empty: all GPUs have it
};
// The precision of the checkpoint that a run continues from. Both are empty if there is none.
struct RecordedPrecision {
  std::string precision, checkpoint;
};

// Reads the precision in the checkpoint that --resume or --output-dir names. Ignores files that it cannot read, because
// the run reports them.
RecordedPrecision recorded_precision(const Settings& settings);

// If the precision is `auto`, replaces it: by the recorded precision, otherwise by bf16 on GPUs that all have it,
// otherwise by fp32. Throws UsageError if the devices do not support the recorded precision.
void settle_precision(ResolvedSettings& resolved, const RunDevices& devices, const RecordedPrecision& recorded);
// The same for the ranks of a run. `world` may be null: a single rank. Collective.
void settle_precision(ResolvedSettings& resolved, World* world);
// The same for a planned run. If no GPU is visible, assumes that the run's GPUs have bf16.
void settle_planned_precision(ResolvedSettings& resolved);

}  // namespace tessera
