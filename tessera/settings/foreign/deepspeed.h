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
  std::vector<std::string> notes;           // lines for the log
  std::optional<int64_t> train_batch_size;  // samples per step over all ranks; nullopt if not given
  bool micro_batch_is_auto = false;         // whether train_micro_batch_size_per_gpu is "auto"
  std::string name;                         // the file's name, for error messages
};

// Reads DeepSpeed's configuration. `others` are the settings from all other sources. They may give the precision: the
// section fp16 applies only to fp16, and the file must not contradict the precision. If they give warmup_ratio,
// DeepSpeed's default of warmup_num_steps does not apply. A key with the value "auto" leaves its setting as it is.
// Throws UsageError if the text is not JSON, or if it contains unknown keys, wrong types, contradictions or unsupported
// features. The error names the key.
DeepSpeedLayer read_deepspeed(std::string_view text, const std::string& name, const ResolvedSettings& others);

// If the file gives train_batch_size, ensures batch_size × grad_accum × ranks = train_batch_size. If batch_size or
// grad_accum is not given, computes it from the other numbers. If neither is given, computes batch_size, and
// grad_accum is 1. Exception: if micro_batch_is_auto, batch_size keeps its default, and grad_accum is computed.
// Throws UsageError if the numbers contradict each other, or if batch_tokens is set.
void settle_batch(const DeepSpeedLayer& layer, ResolvedSettings& resolved);

}  // namespace tessera
