// All ranks of a run: how they were started, and how they communicate.
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

// What the environment says about a process that was started as one of several ranks.
struct RankEnvironment {
  int rank = 0, size = 1;
  std::string source;    // "torchrun", "mpirun", "srun --mpi=pmix", "srun --mpi=pmi2", "srun"
  bool has_mpi = false;  // the launcher works with this program's MPI
};

// Reads the variables in this order: RANK and WORLD_SIZE (torchrun), then OMPI_COMM_WORLD_* (mpirun of Open MPI) or
// PMI_* (mpirun of MPICH, srun --mpi=pmi2), then PMIX_RANK with SLURM_*, then SLURM_PROCID of a job step. If both kinds
// of MPI variables are set, the kind of this program's MPI is used. Returns nullopt if none is set. Under salloc, every
// rank of mpirun sees the same SLURM_PROCID. Therefore mpirun's variables come before SLURM_PROCID. If torchrun's
// variables contradict MPI's variables, torchrun's variables were set before mpirun or srun started, and are ignored.
// Throws UsageError if a value is not a valid number.
std::optional<RankEnvironment> detect_ranks(const Environment& environment, const MpiFlavour& flavour = mpi_flavour());

// How ranks of one node move data. `automatic` reads the memory of other ranks directly where that is permitted, and
// otherwise sends messages.
enum class Transport { automatic, direct, messages };

struct WorldOptions {
  double timeout_s = 600;  // of each wait for other ranks; when ranks start, form groups or end: a few seconds more
  Transport transport = Transport::automatic;
  // The name of the launcher's status board. The launcher reports failures to the user. Empty if there is no launcher.
  std::string board{};
  // Reports one error to the user: not all ranks have arrived or ended in time, a rank is gone, or a collective on GPUs
  // has failed. Used only without a launcher.
  std::function<void(const std::string&)> report{};
};

class World {
 public:
  virtual ~World() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  int local_rank() const;  // this rank's number among the ranks of this node
  int local_size() const;
  // For each rank, the number of its node. Nodes are numbered from 0, in the order of the lowest rank on each node.
  const std::vector<int>& nodes() const { return nodes_; }
  // The number of ranks on each node. 0 if this number differs between nodes, or if the ranks of a node are not
  // consecutive.
  int ranks_per_node() const;

  // The group of all ranks, for host calls only. It needs no device.
  virtual Communicator& communicator() = 0;
  // Makes a group of all ranks for arrays of this device. Collective. On a CPU device it books
  // communication_scratch_bytes(size()); on a GPU it uses NCCL. Throws RunError: a GPU without NCCL. The group, and
  // groups split from it, must be destroyed before the world and the device.
  virtual std::unique_ptr<Communicator> make_communicator(Device& device) = 0;

  // The number of ranks of this node that may run on at least one of this rank's cores. Counts this rank too.
  int ranks_on_these_cores() const { return ranks_on_these_cores_; }

  // Notes what this rank does now ("load", "step"), for reports of failures.
  virtual void enter_phase(const char* phase) = 0;
  // Sets the exit code that the launcher sees after the normal end.
  virtual void set_exit_code(int code) = 0;
  // Ends all ranks because this rank has failed. Without a launcher, one of the failing ranks of a node reports the
  // first failure to the user: it passes one line to `report`.
  [[noreturn]] virtual void fail(ExitCode code, const std::string& error,
                                 const std::function<void(const std::string&)>& report) = 0;
  // Ends all ranks immediately.
  [[noreturn]] virtual void abort(ExitCode code) = 0;

 protected:
  World(int rank, std::vector<int> nodes) : rank_(rank), nodes_(std::move(nodes)) {}
  int ranks_on_these_cores_ = 1;

 private:
  int rank_;
  std::vector<int> nodes_;
};

// The world that `ranks` describes. Without `ranks` it is this process alone, and MPI is not started. Only one world
// may exist at a time; with MPI, only one per process. Throws UsageError if the launcher that started this rank does
// not work with this build's MPI.
std::unique_ptr<World> make_world(const std::optional<RankEnvironment>& ranks, const WorldOptions& options);

// Whether this build can have more than one rank.
bool have_mpi();

// Compares facts (name and value) among the ranks. If a value differs from rank 0's value, every rank throws a
// UsageError that names the rank, the fact and both values. Collective.
void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace tessera
