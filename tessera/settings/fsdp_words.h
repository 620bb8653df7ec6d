// Translates FSDP settings of PyTorch, the Hugging Face Trainer and accelerate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

// The translation of FSDP settings to Tessera's.
struct FsdpMeaning {
  std::vector<std::pair<const Setting*, SettingValue>> values;  // as checked_value() returns them
  // The key and why it is ignored: "use_orig_params (no Python modules)". Empty if it is not ignored.
  std::string note;
};
// Translates one key of the table [fsdp]. The key may begin with "fsdp_". Throws UsageError, which begins with `where`.
FsdpMeaning meaning_of_fsdp_key(const std::string& key, const SettingValue& value, const std::string& where);

// The same for the value of the Trainer's option --fsdp, such as "full_shard auto_wrap offload".
FsdpMeaning meaning_of_fsdp_option(std::string_view text, const std::string& where);

}  // namespace tessera
