#include "tessera/comm/launcher_link.h"

#include <fmt/format.h>

#include <cstdlib>

namespace tessera {

std::string LauncherLink::to_string() const {
  return fmt::format("{}:{}:{}", board, listener, token);
}

std::optional<LauncherLink> find_launcher(const Environment& environment) {
  const auto it = environment.find(kLauncherVariable);
  if (it == environment.end()) return std::nullopt;
  const std::string& text = it->second;
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return std::nullopt;
  return LauncherLink{.board = text.substr(0, first),
                      .listener = std::atoi(text.substr(first + 1, second - first - 1).c_str()),
                      .token = text.substr(second + 1)};
}

}  // namespace tessera
