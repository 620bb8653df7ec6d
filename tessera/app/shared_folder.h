#pragma once

#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// The result of check_shared_folder().
struct SharedFolder {
  std::string folder;  // the absolute path
  std::string tested;  // `folder`, or its nearest parent that exists on rank 0
  // One text for each rank that found a failure: "rank 3 on b: does not see the file of rank 0 on a". Empty if all
  // ranks share the folder `tested`.
  std::vector<std::string> failures;
};

// Tests whether all ranks share the folder SharedFolder::tested. Rank 0 writes a file there. Every other rank must see
// this file and write its own file, and rank 0 must see the files of the other ranks. Then all ranks remove their
// files. `ranks`: for each rank, its name in `failures`. Collective.
SharedFolder check_shared_folder(Communicator& world, const std::string& folder, const std::vector<std::string>& ranks);

}  // namespace tessera
