// The MPI library that this program is linked with (its flavour: family and version), and the differences between the
// launchers (mpirun) of the known flavours.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/process.h"

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

  // Whether the mpirun of one of the two flavours can start programs that are linked with the other flavour.
  bool fits(const MpiFlavour& other) const {
    return family == other.family && (family != Family::open_mpi || major == other.major);
  }
};

// Parses the output of MPI_Get_library_version or `mpirun --version`.
MpiFlavour parse_mpi_flavour(std::string_view version);
// The flavour of the library that this program has loaded.
const MpiFlavour& mpi_flavour();

// Options of mpirun for `num_ranks` ranks on one machine. They allow the user root, and more ranks than cores. They
// bind no rank to a core. Binding is not necessary, because by default a rank has as many threads as its share of the
// cores.
std::vector<std::string> mpirun_options(const MpiFlavour& flavour, int num_ranks);
// Whether the mpirun of `flavour`, with mpirun_options(), ends the other ranks shortly after a rank dies. By default,
// Hydra (the mpirun of MPICH) kills the other ranks immediately. Then nobody can see which rank died first.
// mpirun_options() prevents these kills, and Tessera's launcher ends the ranks instead.
bool mpirun_ends_ranks(const MpiFlavour& flavour);
// Adds environment variables for mpirun and its ranks. These variables keep the run on this machine, even if a batch
// system offers more machines. They suppress messages of MPI that Tessera's launcher replaces with its own. For Open
// MPI, they also make ranks communicate through shared memory. Variables that the user has set stay unchanged.
void add_mpirun_variables(const MpiFlavour& flavour, Environment& environment);

// A message of mpirun about a rank that was killed by a signal. Open MPI's message names the rank. MPICH's message may
// name the process of the rank.
struct ReportedDeath {
  std::optional<int> rank, pid;
  int signal = 0;
};
std::optional<ReportedDeath> reported_death(const std::string& mpirun_output);

}  // namespace tessera
