// What `tessera --nproc` gives the ranks that it starts.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// The variable of a rank's environment that names both: "<name of the board>:<name of the socket>".
inline constexpr const char* kLauncherVariable = "LAUNCHED_BY_TESSERA";

struct LauncherLink {
  std::string board, socket;
};
// Nothing where no launcher has started this process.
std::optional<LauncherLink> find_launcher(const Environment& environment);

}  // namespace tessera
