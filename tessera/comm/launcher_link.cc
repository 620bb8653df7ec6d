#include "tessera/comm/launcher_link.h"

namespace tessera {

std::optional<LauncherLink> find_launcher(const Environment& environment) {
  const auto it = environment.find(kLauncherVariable);
  if (it == environment.end()) return std::nullopt;
  const size_t colon = it->second.find(':');
  if (colon == std::string::npos) return std::nullopt;
  return LauncherLink{it->second.substr(0, colon), it->second.substr(colon + 1)};
}

}  // namespace tessera
