// Translates FSDP settings of PyTorch, the Hugging Face Trainer and accelerate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

// FSDP settings, translated to settings of Tessera.
struct FsdpMeaning {
  std::vector<std::pair<const Setting*, SettingValue>> values;  // values as checked_value() returns them
  // If the FSDP key is ignored: the key and the reason, "use_orig_params (Tessera has no Python modules)". Otherwise
  // empty.
  std::string note;
};
// Translates one key of the table [fsdp] in a TOML file. The key may begin with "fsdp_". Throws UsageError if the
// key is unknown or the value is not valid. The message begins with `where`.
FsdpMeaning meaning_of_fsdp_key(const std::string& key, const SettingValue& value, const std::string& where);

// Translates the value of the Trainer's option --fsdp, such as "full_shard auto_wrap offload". Throws UsageError if the
// value is not valid. The message begins with `where`.
FsdpMeaning meaning_of_fsdp_option(std::string_view text, const std::string& where);

}  // namespace tessera
