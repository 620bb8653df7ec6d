// What `tessera --nproc` gives the ranks that it starts.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// The environment variable in which a rank finds the names of the launcher's status board and of the launcher's socket:
// "<name of the board>:<name of the socket>".
inline constexpr const char* kLauncherVariable = "LAUNCHED_BY_TESSERA";

struct LauncherLink {
  std::string board, socket;
};
// nullopt if no launcher has started this process.
std::optional<LauncherLink> find_launcher(const Environment& environment);

}  // namespace tessera
