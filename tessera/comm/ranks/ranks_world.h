// A world of several ranks, for every kind of messenger.
#pragma once

#include <memory>

#include "tessera/comm/messenger.h"
#include "tessera/comm/status_board.h"
#include "tessera/comm/world.h"

namespace tessera {

// `board` is the board of the launcher, which this rank has joined already, or null. Collective.
std::unique_ptr<World> make_ranks_world(std::unique_ptr<Messenger> messenger, const WorldOptions& options,
                                        std::shared_ptr<StatusBoard> board);

// Makes a group of all ranks of a world that make_ranks_world() has made, with other options. For tests.
std::unique_ptr<Communicator> make_group_with(World& world, Device* device, const WorldOptions& options);

}  // namespace tessera
