// DeepSpeed's JSON configuration (--deepspeed FILE) as a layer of the resolution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

struct DeepSpeedLayer {
  std::vector<LayerValue> presets;  // DeepSpeed's defaults for what the file leaves out, where they differ from ours
  std::vector<LayerValue> values;   // what the file says
  std::vector<std::string> notes;   // for the log
  // Samples of a step on all ranks, if the file says it, and whether it leaves the micro-batch to the trainer ("auto").
  std::optional<int64_t> train_batch_size;
  bool micro_batch_is_auto = false;
  std::string name;  // of the file, for errors
};

// Reads DeepSpeed's configuration. `others` are the settings without it: whether fp16's section matters depends on
// them. "auto" gives nothing, so that the trainer's value stays. Throws UsageError with the path of the key: not JSON,
// unknown keys, values of wrong types, contradictions within the file, and what Tessera does not do.
DeepSpeedLayer read_deepspeed(std::string_view text, const std::string& name, const ResolvedSettings& others);

// Makes batch_size × grad_accum × ranks = train_batch_size: what is given nowhere follows from the rest. Throws
// UsageError that names all of them when they contradict each other.
void settle_batch(const DeepSpeedLayer& layer, ResolvedSettings& resolved);

}  // namespace tessera
