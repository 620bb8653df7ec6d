// Collectives among processes that MPI started, on arrays in host memory.
#pragma once

#include <mpi.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/mpi/collectives.h"
#include "tessera/comm/world.h"

namespace tessera {

// Makes the group of all ranks of `comm`. The group uses a duplicate of `comm`. `device` holds the scratch of
// reductions; it is null if the group serves only calls on host values. `board` shows the collective that this rank
// waits in. It may be null, and must outlive the group. Collective. Throws CommunicationError.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, Device* device, const WorldOptions& options,
                                                    StatusBoard* board);

}  // namespace tessera
