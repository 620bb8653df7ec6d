// Messages through MPI. Only mpi_messenger.cc includes the header of MPI.
#pragma once

#include <memory>
#include <string>

#include "tessera/comm/messenger.h"

namespace tessera {

// Starts MPI. A process may call this function once. The messenger ends MPI in finish(). Throws RunError.
std::unique_ptr<Messenger> make_mpi_messenger();

// The version text of the loaded library. May be called before MPI is started.
std::string mpi_library_version();

}  // namespace tessera
