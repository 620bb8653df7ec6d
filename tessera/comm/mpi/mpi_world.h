#pragma once

#include "tessera/comm/world.h"

namespace tessera {

// Starts MPI. The world ends MPI on destruction. Throws UsageError if MPI and the environment disagree about the number
// of ranks.
std::unique_ptr<World> make_mpi_world(const RankEnvironment& ranks, const WorldOptions& options);

// The version text of the loaded library. May be called before MPI is started.
std::string mpi_library_version();

}  // namespace tessera
