// The MPI library that the program uses: the one that it was linked with, or one of the machine.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/comm/mpi/mpi_calls.h"

namespace tessera {

// The calls, or null without MPI. If the program has modules (in the folder ../lib/tessera beside its own), the first
// call opens the MPI library of the launcher that has started this process: Open MPI for mpirun and srun --mpi=pmix,
// MPICH for its mpirun and srun --mpi=pmi2. Without such a launcher, it opens none. The library must be known to the
// dynamic linker (LD_LIBRARY_PATH), or in the folder ../lib of the mpirun in PATH.
const MpiCalls* mpi_calls();
// Whether this build can use MPI.
bool has_mpi_calls();
// Why mpi_calls() has opened no library although a launcher of MPI has started this process. Otherwise empty.
std::string reason_of_no_mpi();

// Opens the library of each module for a look, for `tessera doctor`: "Open MPI 4.1.4", or why it cannot be opened.
std::vector<std::string> describe_mpi_libraries();

}  // namespace tessera
