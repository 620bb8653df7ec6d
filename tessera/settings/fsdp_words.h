// Translates FSDP settings of PyTorch, the Hugging Face Trainer and accelerate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

// The translation of FSDP settings.
struct FsdpMeaning {
  std::vector<std::pair<const Setting*, SettingValue>> values;  // checked
  std::string note;  // why a key is ignored: "use_orig_params (no Python modules)"; empty if it is not ignored
};
// Translates one key of the table [fsdp]. The key may begin with "fsdp_". Throws UsageError with `where`.
FsdpMeaning meaning_of_fsdp_key(const std::string& key, const SettingValue& value, const std::string& where);

// The same for the Trainer's option: "full_shard auto_wrap offload".
FsdpMeaning meaning_of_fsdp_option(std::string_view text, const std::string& where);

}  // namespace tessera
