// All ranks of a run: how they were started, and how they communicate.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/process.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/meeting_point.h"
#include "tessera/comm/mpi_flavour.h"

namespace tessera {

// What the environment says about a process that was started as one of several ranks.
struct RankEnvironment {
  int rank = 0, size = 1;
  // The starter, which is the program that started the ranks: "torchrun", "mpirun", "srun --mpi=pmix",
  // "srun --mpi=pmi2", "srun" or "the launcher" (comm/launcher_link.h). "torchrun" stands for every program that sets
  // the same variables.
  std::string source;
  bool has_mpi = false;  // the starter works with this program's MPI
  // With several ranks and without MPI: finds where the ranks meet. Throws UsageError if they cannot meet.
  std::function<MeetingPoint()> find_meeting{};
};

// Reads the variables of one starter, the first in this list that has set its variables: the launcher, then RANK and
// WORLD_SIZE (torchrun), then OMPI_COMM_WORLD_* (mpirun of Open MPI) or PMI_* (mpirun of MPICH, srun --mpi=pmi2), then
// PMIX_RANK with SLURM_* (srun --mpi=pmix), then SLURM_PROCID of a job step with several tasks (srun). Returns nullopt
// if no starter has set its variables. Throws UsageError if a value is not a valid number, if the rank is not below the
// number of ranks, or if only some variables of torchrun are set.
//   - If the variables of several kinds of MPI are set, the variables of this program's MPI are used.
//   - SLURM_PROCID comes last, because under salloc every rank of mpirun sees the same SLURM_PROCID.
//   - RANK and WORLD_SIZE are ignored if they contradict the variables of mpirun or srun. In this case, they were set
//     before mpirun or srun started.
std::optional<RankEnvironment> detect_ranks(const Environment& environment, const MpiFlavour& flavour = mpi_flavour());

// How ranks of one node move data. `automatic` reads the memory of other ranks directly where that is permitted, and
// otherwise sends messages.
enum class Transport { automatic, direct, messages };

struct WorldOptions {
  // The longest wait for other ranks. When ranks start, form groups or end, the limit is a few seconds longer.
  double timeout_s = 600;
  Transport transport = Transport::automatic;
  // The name of the status board (comm/status_board.h) of the launcher (`tessera --nproc`). Empty without a launcher,
  // for example under mpirun or srun. If there is a launcher, it reports failures to the user.
  std::string board{};
  // Prints an error for the user. It is called only without a launcher, and only for these errors: not all ranks have
  // arrived or ended in time, a rank is gone, another node has reported an error, or a collective on GPUs has failed.
  std::function<void(const std::string&)> report{};
  // Prints a line for the user, such as "refused a connection".
  std::function<void(const std::string&)> log{};
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
  // The number of ranks on each node. 0 if nodes have different numbers of ranks, or if the numbers of the ranks on a
  // node are not consecutive.
  int ranks_per_node() const;

  // The group of all ranks. It has no device, so only the calls on host values are allowed (comm/communicator.h).
  virtual Communicator& communicator() = 0;
  // What messages between ranks go through: "Open MPI 4.1.4", "TCP". Empty without other ranks.
  virtual std::string messages() const { return ""; }
  // Makes a group of all ranks for arrays of this device. Collective. On a CPU, the group books
  // communication_scratch_bytes(size()) in the ledger of the device. On a GPU, the group uses NCCL. Throws RunError if
  // the device is a GPU and NCCL is missing. The group, and all groups split from it, must be destroyed before the
  // world and the device.
  virtual std::unique_ptr<Communicator> make_communicator(Device& device) = 0;

  // The number of ranks of this node that may run on at least one of this rank's cores. Counts this rank too.
  int ranks_on_these_cores() const { return ranks_on_these_cores_; }

  // Notes what this rank does now ("load", "step"), for reports of failures.
  virtual void enter_phase(const char* phase) = 0;
  // Sets the exit code that the launcher sees after the normal end.
  virtual void set_exit_code(int code) = 0;
  // Ends all ranks because this rank has failed. Without a launcher, one of the failing ranks of each node passes the
  // first failure on its node to `report`, which prints it for the user.
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

// Makes the world that `ranks` describes. Without `ranks`, the world is this process alone. The ranks communicate
// through MPI if their starter works with this program's MPI, and otherwise through TCP. A process may have only one
// world at a time. With MPI, it may make only one world in total. Throws UsageError if the ranks cannot meet, and
// CommunicationError if they do not meet in time.
std::unique_ptr<World> make_world(const std::optional<RankEnvironment>& ranks, const WorldOptions& options);

// Whether an error begins with a text like "rank 3: ". Such an error already names the rank where it occurred.
bool names_a_rank(std::string_view error);

// Compares facts (name and value) among the ranks. If a value differs from rank 0's value, every rank throws a
// UsageError that names the rank, the fact and both values. Collective.
void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace tessera
