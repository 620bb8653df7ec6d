// Reads arbitrary bytes as a configuration file. The file must either give valid settings, or cause a UsageError. Valid
// settings can be printed, and the printed text gives the same settings when it is read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto resolve_text = [](std::string_view toml) {
      return resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "fuzz.toml")}, kAllGroups, "config",
                     {"config", "doctor"});
    };
    const ResolvedSettings resolved = resolve_text(text);
    check_consistent(resolved);
    const std::string printed = resolved_config_text(resolved);
    const ResolvedSettings again = resolve_text(printed);
    for (const auto& setting : all_settings()) {
      if (setting.stands_for_others) continue;
      TESSERA_ASSERT(setting.get(again.settings) == setting.get(resolved.settings));
    }
  } catch (const UsageError&) {
  }
  return 0;
}
