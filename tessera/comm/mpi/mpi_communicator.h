// Collectives among processes that MPI started, on arrays in the host's memory.
#pragma once

#include <mpi.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/mpi/lane.h"
#include "tessera/comm/world.h"

namespace tessera {

// A group of the ranks of `comm`, which it duplicates for its own use. `device` is null for host calls alone.
// `board`, which may be null, outlives it. Collective. CommunicationError.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, Device* device, const WorldOptions& options,
                                                    StatusBoard* board);

}  // namespace tessera
