#pragma once

#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// Whether all ranks share a folder.
struct SharedFolder {
  std::string folder;  // as asked for, absolute
  std::string tested;  // itself, or its nearest parent that exists on rank 0
  // What failed, one text for each rank concerned: "rank 3 (host b) does not see the file of rank 0".
  std::vector<std::string> failures;
};

// Rank 0 writes a file; every other rank must see it and write its own; rank 0 must see all of them. The files are
// removed. `ranks`: how to name each rank in failures. Collective.
SharedFolder check_shared_folder(Communicator& world, const std::string& folder, const std::vector<std::string>& ranks);

}  // namespace tessera
