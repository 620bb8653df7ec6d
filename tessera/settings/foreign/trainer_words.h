// The settings of the Hugging Face Trainer that have no direct counterpart in Tessera: fsdp, fsdp_config, fp16, bf16,
// gradient_checkpointing, optim and report_to. Each of them sets other settings of Tessera, or is only checked.
#pragma once

#include <string>

#include "tessera/settings/resolve.h"

namespace tessera {

// Applies those settings of the Trainer that were given. Each value that such a setting implies has the same precedence
// as this setting. Throws UsageError if a setting of the Trainer contradicts another setting of the same precedence, or
// has a value without a meaning in Tessera.
void apply_trainer_words(ResolvedSettings& resolved);

// Sets `setting` to `value`, which the given setting `by` implies. If `setting` has a higher precedence than `by`, or
// does not belong to the verb, nothing changes. Throws UsageError if both have the same precedence and `setting` has
// another value.
void set_implied(ResolvedSettings& resolved, const std::string& by, const Setting& setting, const SettingValue& value);

}  // namespace tessera
