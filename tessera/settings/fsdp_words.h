// FSDP's own words, as the configurations of PyTorch, the Trainer and accelerate have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/settings/resolve.h"

namespace tessera {

// What one key of the table [fsdp] means: settings with their checked values, or a note that it has no meaning here.
// Keys may begin with "fsdp_". Throws UsageError with `where`.
struct FsdpMeaning {
  std::vector<std::pair<const Setting*, SettingValue>> values;
  std::string note;  // "use_orig_params (no Python modules)"; empty: none
};
FsdpMeaning meaning_of_fsdp_key(const std::string& key, const SettingValue& value, const std::string& where);

// The same of the Trainer's option: "full_shard auto_wrap offload".
FsdpMeaning meaning_of_fsdp_option(std::string_view text, const std::string& where);

}  // namespace tessera
