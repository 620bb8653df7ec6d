// Messages through MPI.
#pragma once

#include <memory>

#include "tessera/comm/messenger.h"

namespace tessera {

// Starts MPI, which mpi_calls() (mpi_library.h) must have found. A process may call this function once. The messenger
// ends MPI in finish(). Throws RunError.
std::unique_ptr<Messenger> make_mpi_messenger();

}  // namespace tessera
