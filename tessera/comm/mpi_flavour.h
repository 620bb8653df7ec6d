// The MPI library that this program uses: its flavour, which is its family and version.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

struct MpiFlavour {
  enum class Family {
    none,      // this build has no MPI, or an unknown one
    open_mpi,  // ranks find each other through PMIx; the runtime is ORTE up to version 4, then PRRTE
    mpich,     // MPICH, Intel MPI or MVAPICH; ranks find each other through PMI; mpirun is Hydra
  };
  Family family = Family::none;
  int major = 0;
  std::string text{};  // for example "Open MPI 5.0.11"
};

// Parses the output of MPI_Get_library_version or `mpirun --version`.
MpiFlavour parse_mpi_flavour(std::string_view version);
// The flavour of the library of mpi_calls() (mpi/mpi_library.h).
const MpiFlavour& mpi_flavour();

}  // namespace tessera
