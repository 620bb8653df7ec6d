// Groups of the ranks of a run, for arrays in host memory and for values.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "tessera/comm/communicator.h"
#include "tessera/comm/messenger.h"
#include "tessera/comm/status_board.h"
#include "tessera/comm/world.h"

namespace tessera {

// What all groups of a process share.
struct GroupBasis {
  Messenger* messenger;
  StatusBoard* board;  // shows the collective that this rank waits in; may be null
  WorldOptions options;
  // The lowest number that no channel of this process has.
  std::shared_ptr<int> next_channel = std::make_shared<int>(0);
};

// Makes the first group of all ranks. It has no device. Uses a channel to form the group. The basis must outlive all
// groups. Collective. Throws CommunicationError.
std::unique_ptr<Communicator> make_first_group(GroupBasis& basis);

// Makes a further group of the ranks of `parent`. `device` holds the scratch of reductions; it is null if the group
// serves only calls on host values. Collective. Throws CommunicationError.
std::unique_ptr<Communicator> make_group(GroupBasis& basis, Communicator& parent, Device* device);

}  // namespace tessera
