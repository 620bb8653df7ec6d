// What `tessera --nproc` gives the ranks that it starts.
#pragma once

#include <optional>
#include <string>

#include "tessera/base/process.h"

namespace tessera {

// The environment variable that the launcher sets for its ranks: "<name of the status board>:<descriptor>:<token>". The
// launcher also sets the variables of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT.
inline constexpr const char* kLauncherVariable = "LAUNCHED_BY_TESSERA";

struct LauncherLink {
  std::string board;
  int listener = -1;  // of rank 0: the descriptor of the socket that listens at MASTER_PORT; other ranks: -1
  std::string token;  // all ranks of one start have the same token

  std::string to_string() const;
};
// Returns nullopt if no launcher has started this process.
std::optional<LauncherLink> find_launcher(const Environment& environment);

}  // namespace tessera
