// Collectives among processes that MPI started, on arrays in host memory.
#pragma once

#include <mpi.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/mpi/collectives.h"
#include "tessera/comm/world.h"

namespace tessera {

// A group of the ranks of `comm`. The group duplicates `comm` for its own use. `device` is null if the group serves
// host calls only. `board` may be null, and must outlive the group. Collective. Throws CommunicationError.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, Device* device, const WorldOptions& options,
                                                    StatusBoard* board);

}  // namespace tessera
