// The settings of the Hugging Face Trainer that have no direct counterpart in Tessera: fsdp, fsdp_config, fp16, bf16,
// gradient_checkpointing, optim and report_to. Each sets other settings, or is only checked.
#pragma once

#include <string>

#include "tessera/settings/resolve.h"

namespace tessera {

// Applies the settings of the Trainer that were given. Each has the precedence of its source. Throws UsageError if one
// of them contradicts another setting of the same precedence, or has a value without a meaning in Tessera.
void apply_trainer_words(ResolvedSettings& resolved);

// Sets `setting` because the given setting `by` implies the value. If `setting` has a value of higher precedence, this
// value stays. Throws UsageError if `setting` has a different value of the same precedence.
void set_implied(ResolvedSettings& resolved, const std::string& by, const Setting& setting, const SettingValue& value);

}  // namespace tessera
