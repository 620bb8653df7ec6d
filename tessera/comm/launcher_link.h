// What `tessera --nproc` gives the ranks that it starts.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// The environment variable that the launcher sets for its ranks: "<name of the status board>:<name of the socket>".
// Through the socket, a rank gets the launcher's output streams.
inline constexpr const char* kLauncherVariable = "LAUNCHED_BY_TESSERA";

struct LauncherLink {
  std::string board, socket;
};
// Returns nullopt if no launcher has started this process.
std::optional<LauncherLink> find_launcher(const Environment& environment);

}  // namespace tessera
