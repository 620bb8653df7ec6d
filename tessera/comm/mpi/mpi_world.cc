#include "tessera/comm/mpi/mpi_world.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>

#include "tessera/comm/mpi/mpi_communicator.h"

namespace tessera {
namespace {

// MPI from the first to the last moment of a world.
class MpiLibrary {
 public:
  MpiLibrary() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) {
      throw RunError("MPI", "does not support calls from several threads (MPI_THREAD_MULTIPLE)");
    }
  }
  ~MpiLibrary() { MPI_Finalize(); }
};

int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

// The node of each rank, numbered in the order of their first ranks.
std::vector<int> find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int leader = rank_of(MPI_COMM_WORLD), size = 0;
  MPI_Bcast(&leader, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> nodes(static_cast<size_t>(size));
  MPI_Allgather(&leader, 1, MPI_INT, nodes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> leaders = nodes;
  std::sort(leaders.begin(), leaders.end());
  leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
  for (int& n : nodes) {
    n = static_cast<int>(std::lower_bound(leaders.begin(), leaders.end(), n) - leaders.begin());
  }
  return nodes;
}

class MpiWorld final : private MpiLibrary, public World {
 public:
  explicit MpiWorld(const WorldOptions& options)
      : World(rank_of(MPI_COMM_WORLD), find_nodes()),
        options_(options),
        communicator_(make_mpi_communicator(MPI_COMM_WORLD, nullptr, options)) {}
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> make_communicator(Device& device) override {
    communicator_->barrier("groups to form");
    return make_mpi_communicator(MPI_COMM_WORLD, &device, options_);
  }
  void abort(ExitCode code) override {
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::_Exit(static_cast<int>(code));
  }

 private:
  WorldOptions options_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(const RankEnvironment& ranks, const WorldOptions& options) {
  auto world = std::make_unique<MpiWorld>(options);
  if (ranks.size > 0 && world->size() != ranks.size) {
    throw UsageError(ranks.source,
                     fmt::format("started {} ranks, but this program's MPI finds {}", ranks.size, world->size()),
                     "Use the mpirun of the Open MPI that Tessera was built with, or srun --mpi=pmix");
  }
  return world;
}

}  // namespace tessera
