#include "tessera/comm/mpi/mpi_world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "tessera/base/counted.h"
#include "tessera/comm/mpi/mpi_communicator.h"
#include "tessera/comm/mpi/peer_watch.h"
#include "tessera/comm/mpi/rendezvous_limit.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/comm/status_board.h"
#include "tessera/comm/time_limit.h"

namespace tessera {
namespace {

// Starts MPI before the other parts of a world are made, and ends MPI after they are destroyed.
class MpiLibrary {
 public:
  explicit MpiLibrary(const WorldOptions& options) : options_(options) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) {
      throw RunError("MPI", "does not support calls from several threads (MPI_THREAD_MULTIPLE)");
    }
  }
  ~MpiLibrary() { MPI_Finalize(); }

 protected:
  const WorldOptions options_;
  std::shared_ptr<StatusBoard> board_;
  std::optional<RendezvousLimit> end_;  // limits MPI_Finalize
};

// Whether an error begins with a text like "rank 3: ". Such an error already names the rank where it occurred.
bool names_a_rank(std::string_view error) {
  constexpr std::string_view kBegin = "rank ";
  if (!error.starts_with(kBegin)) return false;
  const size_t end = error.find_first_not_of("0123456789", kBegin.size());
  return end != kBegin.size() && error.substr(std::min(end, error.size())).starts_with(": ");
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

// For each rank, the number of its node. Nodes are numbered from 0, in the order of the lowest rank on each node.
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

// Joins this rank to the board that the ranks of this node share, and returns this board. It is the launcher's board if
// `launchers` is set. Otherwise the lowest rank of the node creates it.
std::shared_ptr<StatusBoard> make_board(int rank, int size, std::shared_ptr<StatusBoard> launchers) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  const bool leads = rank_of(node) == 0;
  char name[64] = {};
  std::shared_ptr<StatusBoard> board = std::move(launchers);
  if (leads && !board) {
    board = StatusBoard::create(size);
    board->name().copy(name, sizeof name - 1);
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, node);
  if (!board) board = StatusBoard::open(name, size);
  board->join(rank);
  MPI_Barrier(node);
  MPI_Comm_free(&node);
  return board;
}

// The set of cores that this process may use, as the bytes of a cpu_set_t.
std::string allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

bool overlap(const std::string& a, const std::string& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] & b[i]) return true;
  }
  return false;
}

class MpiWorld final : private MpiLibrary, public World {
 public:
  MpiWorld(const WorldOptions& options, std::shared_ptr<StatusBoard> launchers_board)
      : MpiLibrary(options), World(rank_of(MPI_COMM_WORLD), find_nodes()) {
    board_ = make_board(rank(), size(), std::move(launchers_board));
    if (options_.board.empty() && size() > 1) {
      const auto lost = [this](int peer) {
        fail_after(peer, ExitCode::kCommunication, fmt::format("rank {} is gone", peer), options_.report);
      };
      watch_ = std::make_unique<PeerWatch>(*board_, rank(), lost, [this] { terminate(); });
    }
    communicator_ = make_mpi_communicator(MPI_COMM_WORLD, nullptr, options_, board_.get());
    const std::string mine = allowed_cores();
    const auto cores = communicator_->all_gather_text(mine, "cores");
    ranks_on_these_cores_ = 0;
    for (size_t r = 0; r < cores.size(); ++r) {
      const bool same_node = nodes()[r] == nodes()[static_cast<size_t>(rank())];
      ranks_on_these_cores_ += same_node && (r == static_cast<size_t>(rank()) || overlap(cores[r], mine));
    }
  }
  ~MpiWorld() override {
    communicator_.reset();
    end_.emplace("ended", rank(), options_, board_.get());
    board_->end(rank(), exit_code_);
  }
  Communicator& communicator() override { return *communicator_; }
  std::unique_ptr<Communicator> make_communicator(Device& device) override {
    const bool cuda = device.kind() == DeviceKind::cuda;
    communicator_->barrier("groups to form");
    std::unique_ptr<Communicator> group = [&] {
      const RendezvousLimit limit("arrived", rank(), options_, board_.get());
      return make_mpi_communicator(MPI_COMM_WORLD, cuda ? nullptr : &device, options_, board_.get());
    }();
    if (!cuda) return group;
    const auto end_run = [this](const CommunicationError& error) { fail(error.code(), error.what(), options_.report); };
    return make_nccl_communicator(
        std::move(group), std::make_shared<NcclMemory>(device),
        {.rank = rank(), .timeout_s = options_.timeout_s, .board = board_.get(), .fail = end_run});
  }
  void enter_phase(const char* phase) override { board_->enter_phase(rank(), phase); }
  void set_exit_code(int code) override { exit_code_ = code; }

  void fail(ExitCode code, const std::string& error, const std::function<void(const std::string&)>& report) override {
    fail_after(std::nullopt, code, error, report);
  }
  void abort(ExitCode code) override {
    board_->end(rank(), static_cast<int>(code));  // so other ranks do not look for the cause
    end_all(code);
  }

 private:
  // Ends all ranks because this one has failed. `lost`: the rank that caused the failure because its process is gone,
  // if known.
  [[noreturn]] void fail_after(std::optional<int> lost, ExitCode code, const std::string& error,
                               const std::function<void(const std::string&)>& report) {
    failing_.lock();  // never unlocked: if two threads fail, only the first one continues
    std::string text = names_a_rank(error) ? error : fmt::format("rank {}: {}", rank(), error);
    const bool is_consequence = code == ExitCode::kCommunication;
    // The board is read before fail(): afterwards other ranks continue, and the board changes.
    if (is_consequence && board_->is_waiting(rank())) {
      for (const auto& sentence : {board_->not_waiting(), board_->waiting()}) {
        if (!sentence.empty()) text += (text.ends_with('.') ? " " : ". ") + sentence;
      }
    }
    board_->fail(rank(), code, text);
    // Waits up to a second for the cause: another rank may be about to report its own failure, or a rank may be gone.
    // A rank that is gone reports nothing, so this rank reports it.
    for (int i = 0; is_consequence && !lost && i < 20 && board_->first_failure()->code == code; ++i) {
      if (watch_) lost = watch_->lost();
      if (!lost) sleep_ms(50);
    }
    const bool reports = options_.board.empty() && board_->claim_report();
    if (reports && report) report(account(lost));
    if (!reports && options_.board.empty()) sleep_ms(1000);  // mpirun must not kill the rank that reports
    // MPI_Abort would make Hydra (the mpirun of MPICH) kill the other ranks immediately. These ranks may be about to
    // release the output folder. The launcher gives them time for this.
    if (!options_.board.empty() && !mpirun_ends_ranks(mpi_flavour())) std::_Exit(static_cast<int>(code));
    end_all(code);
  }
  std::string account(std::optional<int> lost) const {
    const StatusBoard::Failure failure = *board_->first_failure();
    if (!lost || failure.code != ExitCode::kCommunication) return board_->account(failure);
    for (int i = 0; i < 6 && board_->waiting().empty(); ++i) sleep_ms(50);  // meanwhile, other ranks reach a collective
    return board_->account({*lost, ExitCode::kRunFailed,
                            fmt::format("rank {} (process {}) was killed, or ended without an error message", *lost,
                                        board_->pid_of(*lost))});
  }
  // Ends this process as SIGTERM does without a handler. For the other ranks, this is a normal end and not a failure.
  void terminate() {
    if (!failing_.try_lock()) return;  // this rank is about to report a failure, and then ends
    board_->end(rank(), 128 + SIGTERM);
    std::signal(SIGTERM, SIG_DFL);
    std::raise(SIGTERM);
  }
  [[noreturn]] void end_all(ExitCode code) const {
    if (!options_.board.empty()) {  // the launcher reports; MPI's own messages about this end would be noise
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDERR_FILENO);
    }
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::_Exit(static_cast<int>(code));
  }
  static void sleep_ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

  int exit_code_ = 0;
  std::mutex failing_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<PeerWatch> watch_;  // only without a launcher
};

}  // namespace

std::unique_ptr<World> make_mpi_world(const RankEnvironment& ranks, const WorldOptions& options) {
  std::shared_ptr<StatusBoard> board;
  if (!options.board.empty() && ranks.rank < ranks.size) {
    board = StatusBoard::open(options.board, ranks.size);
    board->join(ranks.rank);
  }
  const RendezvousLimit limit("arrived", ranks.rank, options, board.get());
  auto world = std::make_unique<MpiWorld>(options, board);
  if (ranks.size > 0 && world->size() != ranks.size) {
    throw UsageError(ranks.source,
                     fmt::format("started {}, but the MPI library of this program finds {}",
                                 counted(ranks.size, "rank"), world->size()),
                     fmt::format("Use the mpirun of {}, which this program uses, or srun --mpi={}", mpi_flavour().text,
                                 mpi_flavour().family == MpiFlavour::Family::mpich ? "pmi2" : "pmix"));
  }
  return world;
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

}  // namespace tessera
