#pragma once

#include "tessera/comm/world.h"

namespace tessera {

// Starts MPI, and ends it on destruction. UsageError when MPI's ranks are not those of the environment.
std::unique_ptr<World> make_mpi_world(const RankEnvironment& ranks, const WorldOptions& options);

// What the loaded library says it is; MPI need not be started.
std::string mpi_library_version();

}  // namespace tessera
