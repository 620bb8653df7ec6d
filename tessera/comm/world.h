// All ranks of a run: how they were started, and how they talk.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/process.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/mpi_flavour.h"

namespace tessera {

// What the environment tells of a process that was started as one of several ranks.
struct RankEnvironment {
  int rank = 0, size = 1;
  std::string source;    // "torchrun", "mpirun", "srun --mpi=pmix", "srun --mpi=pmi2", "srun"
  bool has_mpi = false;  // the one that started it speaks to this program's MPI
};

// From the variables RANK, WORLD_SIZE (torchrun), else OMPI_COMM_WORLD_* (Open MPI's mpirun) or PMI_* (MPICH's, and
// srun
// --mpi=pmi2), the one that the program's MPI understands first, else PMIX_RANK with SLURM_*, else SLURM_PROCID of a
// step; none of them: nothing. Under salloc every rank of mpirun sees the same SLURM_PROCID, so mpirun goes first;
// torchrun's variables that those of MPI contradict are inherited ones.
// Throws UsageError on a number that is none.
std::optional<RankEnvironment> detect_ranks(const Environment& environment, const MpiFlavour& flavour = mpi_flavour());

// How ranks of one node move data. `automatic`: reading each other's memory where they may, else messages.
enum class Transport { automatic, direct, messages };

struct WorldOptions {
  double timeout_s = 600;  // of each wait for another rank; they may take a little longer to meet
  Transport transport = Transport::automatic;
  // The name of the launcher's status board, which tells the user of failures; empty: there is no launcher.
  std::string board{};
  // Where there is no launcher: tells the user that the ranks have not met in time, or that a watch has ended them.
  std::function<void(const std::string&)> tell{};
};

class World {
 public:
  virtual ~World() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int local_rank() const;  // among the ranks of this node
  int local_size() const;
  // The node of each rank, by rank: 0, 1, … in the order of their first ranks.
  const std::vector<int>& nodes() const { return nodes_; }
  // Ranks on every node; 0 where nodes have different numbers of ranks, or a node's ranks do not follow each other.
  int ranks_per_node() const;

  // Of all ranks, for host calls alone, and there before any device is.
  virtual Communicator& communicator() = 0;
  // Of all ranks, for arrays of this device, collective: a CPU, on which it books communication_scratch_bytes(size()),
  // or a GPU, for which it is NCCL's. RunError: a GPU, and no NCCL. It and those split from it must go before the world
  // and the device.
  virtual std::unique_ptr<Communicator> make_communicator(Device& device) = 0;

  // Ranks of this node, this one included, that may run on the same cores as this one.
  int ranks_on_these_cores() const { return ranks_on_these_cores_; }

  // What this rank is at, for the account of a failure: "load", "step".
  virtual void enter_phase(const char* phase) = 0;
  // With which the process is about to end in order, for the launcher.
  virtual void set_exit_code(int code) = 0;
  // Ends all ranks because this one has failed. Where there is no launcher that does so, one of the ranks of a node
  // that fail tells the user what failed first: by `tell`, which gets one line.
  [[noreturn]] virtual void fail(ExitCode code, const std::string& error,
                                 const std::function<void(const std::string&)>& tell) = 0;
  // Ends all ranks at once.
  [[noreturn]] virtual void abort(ExitCode code) = 0;

 protected:
  World(int rank, std::vector<int> nodes) : rank_(rank), nodes_(std::move(nodes)) {}
  int ranks_on_these_cores_ = 1;

 private:
  int rank_;
  std::vector<int> nodes_;
};

// The world that `ranks` tells of; without one, this process alone, for which MPI is not started. One at a time, and
// one a process where MPI is used. UsageError when the process was started as a rank by something that does not speak
// to this build's MPI.
std::unique_ptr<World> make_world(const std::optional<RankEnvironment>& ranks, const WorldOptions& options);

// Whether this build can have more than one rank.
bool have_mpi();

// Compares facts, each a name and a value, among the ranks: UsageError on every rank that names a rank, the fact and
// both values where one differs from rank 0's. Collective.
void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace tessera
