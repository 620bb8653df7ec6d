// Reads DeepSpeed's JSON configuration (--deepspeed FILE). For resolve(), it is one layer: a source of settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

struct DeepSpeedLayer {
  std::vector<LayerValue> presets;          // DeepSpeed's defaults for missing keys, if they differ from Tessera's
  std::vector<LayerValue> values;           // the values in the file
  std::vector<std::string> notes;           // for the log, one line each
  std::optional<int64_t> train_batch_size;  // samples per step over all ranks; nullopt if not given
  bool micro_batch_is_auto = false;         // whether train_micro_batch_size_per_gpu is "auto"
  std::string name;                         // of the file, for error messages
};

// Reads DeepSpeed's configuration. `others` are the settings without this file. They help decide whether the section
// fp16 and the default of warmup_num_steps apply, and whether the file contradicts the precision. A key with the value
// "auto" leaves the setting as it is. Throws UsageError, with the path of the key, if the text is not JSON, or if it
// contains unknown keys, wrong types, contradictions or unsupported features.
DeepSpeedLayer read_deepspeed(std::string_view text, const std::string& name, const ResolvedSettings& others);

// If the file gives train_batch_size, ensures batch_size × grad_accum × ranks = train_batch_size. If a factor
// is not given, computes it from the other numbers. Throws UsageError, which names the known factors, if the numbers
// contradict each other.
void settle_batch(const DeepSpeedLayer& layer, ResolvedSettings& resolved);

}  // namespace tessera
