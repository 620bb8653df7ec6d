// The MPI that this program is linked with, and how the launchers (mpirun) of the known ones differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/process.h"

namespace tessera {

struct MpiFlavour {
  enum class Family {
    none,      // this build has no MPI, or one that is not known
    open_mpi,  // its ranks find each other through PMIx; up to version 4 with ORTE, then with PRRTE
    mpich,     // and those made from it, as Intel MPI and MVAPICH: PMI and Hydra
  };
  Family family = Family::none;
  int major = 0;
  std::string text{};  // "Open MPI 5.0.11"

  // Whether the mpirun of one starts ranks of the other.
  bool fits(const MpiFlavour& other) const {
    return family == other.family && (family != Family::open_mpi || major == other.major);
  }
};

// Of what MPI_Get_library_version or `mpirun --version` say.
MpiFlavour parse_mpi_flavour(std::string_view version);
// Of the library that this program has loaded.
const MpiFlavour& mpi_flavour();

// Options of mpirun for so many ranks of one machine: as root too, more ranks than cores too, and nobody bound to a
// core, because ranks share the cores by their numbers of threads.
std::vector<std::string> mpirun_options(const MpiFlavour& flavour, int num_ranks);
// Whether this mpirun, with these options, ends the other ranks when one dies, a moment later. Hydra would kill them at
// the same moment, so that nobody could see which rank died first: the launcher does it in Hydra's stead.
bool mpirun_ends_ranks(const MpiFlavour& flavour);
// Variables of mpirun and its ranks: on this machine alone, whatever a batch system offers, and through shared memory.
// What the user has set stays.
void add_mpirun_variables(const MpiFlavour& flavour, Environment& environment);

// What mpirun prints about a rank that a signal has killed. Each flavour names the rank or its process.
struct ReportedDeath {
  std::optional<int> rank, pid;
  int signal = 0;
};
std::optional<ReportedDeath> reported_death(const std::string& mpiruns_words);

}  // namespace tessera
