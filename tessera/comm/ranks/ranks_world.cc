#include "tessera/comm/ranks/ranks_world.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/comm/ranks/group_communicator.h"
#include "tessera/comm/ranks/peer_watch.h"
#include "tessera/comm/ranks/rendezvous_limit.h"

namespace tessera {
namespace {

// A text that is the same for all ranks of one node, and different on every other node. Ranks of one node see the same
// processes, so they can share memory. Ranks in different containers of one machine are on different nodes.
std::string text_of_node() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::string text = fmt::format("{} {}", host.data(), boot);
  for (const char* name : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::array<char, 64> target{};
    const ssize_t length = readlink(name, target.data(), target.size());
    if (length > 0) text += " " + std::string(target.data(), static_cast<size_t>(length));
  }
  return text;
}

// For each text, the number of its node. Nodes are numbered from 0, in the order of the lowest rank on each node.
std::vector<int> numbers_of_nodes(const std::vector<std::string>& texts) {
  std::vector<std::string> known;
  std::vector<int> nodes;
  for (const std::string& text : texts) {
    const auto it = std::find(known.begin(), known.end(), text);
    nodes.push_back(static_cast<int>(it - known.begin()));
    if (it == known.end()) known.push_back(text);
  }
  return nodes;
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

// The parts of a world that exist before the world knows its nodes.
struct WorldBasis {
  WorldBasis(std::unique_ptr<Messenger> messenger, const WorldOptions& options, std::shared_ptr<StatusBoard> launchers)
      : messenger_(std::move(messenger)), board_(std::move(launchers)) {
    basis_.options = options;
    basis_.messenger = messenger_.get();
    basis_.board = board_.get();
    communicator_ = make_first_group(basis_);
  }

  std::unique_ptr<Messenger> messenger_;
  std::shared_ptr<StatusBoard> board_;
  GroupBasis basis_{};
  std::unique_ptr<Communicator> communicator_;
};

class RanksWorld final : private WorldBasis, public World {
 public:
  RanksWorld(std::unique_ptr<Messenger> messenger, const WorldOptions& options, std::shared_ptr<StatusBoard> launchers)
      : WorldBasis(std::move(messenger), options, std::move(launchers)),
        World(messenger_->rank(), numbers_of_nodes(communicator_->all_gather_text(text_of_node(), "nodes"))),
        options_(options) {
    if (!board_) {
      share_board();
      communicator_ = make_group(basis_, *communicator_, nullptr);  // shows on the board where this rank waits
    }
    if (!has_launcher() && size() > 1) {
      const auto lost = [this](int peer) {
        fail_after(peer, ExitCode::kCommunication, fmt::format("rank {} is gone", peer), options_.report);
      };
      watch_ = std::make_unique<PeerWatch>(*board_, rank(), lost, [this] { terminate(); });
    }
    const std::string mine = allowed_cores();
    const auto cores = communicator_->all_gather_text(mine, "cores");
    ranks_on_these_cores_ = 0;
    for (size_t r = 0; r < cores.size(); ++r) {
      const bool same_node = nodes()[r] == nodes()[static_cast<size_t>(rank())];
      ranks_on_these_cores_ += same_node && (r == static_cast<size_t>(rank()) || overlap(cores[r], mine));
    }
    // The last call of the constructor, because heed() uses all members.
    if (!has_launcher() && size() > 1) messenger_->watch([this](const Alarm& alarm) { heed(alarm); });
  }
  ~RanksWorld() override {
    messenger_->watch({});
    communicator_.reset();
    board_->end(rank(), exit_code_);
    watch_.reset();
    const RendezvousLimit limit("ended", rank(), options_, board_.get());
    messenger_->finish();
  }
  Communicator& communicator() override { return *communicator_; }
  std::string messages() const override { return messenger_->name(); }
  std::unique_ptr<Communicator> make_communicator(Device& device) override {
    const bool cuda = device.kind() == DeviceKind::cuda;
    std::unique_ptr<Communicator> group = make_group(basis_, *communicator_, cuda ? nullptr : &device);
    if (!cuda) return group;
    const auto end_run = [this](const CommunicationError& error) { fail(error.code(), error.what(), options_.report); };
    return make_nccl_communicator(
        std::move(group), nodes()[static_cast<size_t>(rank())], std::make_shared<NcclMemory>(device),
        {.rank = rank(), .timeout_s = options_.timeout_s, .board = board_.get(), .fail = end_run});
  }
  void enter_phase(const char* phase) override {
    board_->enter_phase(rank(), phase);
    messenger_->enter_phase(phase);
  }
  void set_exit_code(int code) override { exit_code_ = code; }

  void fail(ExitCode code, const std::string& error, const std::function<void(const std::string&)>& report) override {
    fail_after(std::nullopt, code, error, report);
  }
  void abort(ExitCode code) override {
    board_->end(rank(), static_cast<int>(code));  // so other ranks do not look for the cause
    messenger_->raise(code, "");
    end_all(code);
  }

  std::unique_ptr<Communicator> group_with(Device* device, const WorldOptions& options) {
    other_bases_.push_back(std::make_unique<GroupBasis>(basis_));
    other_bases_.back()->options = options;
    return make_group(*other_bases_.back(), *communicator_, device);
  }

 private:
  bool has_launcher() const { return !options_.board.empty(); }
  // Joins this rank to the board that the ranks of this node share. The lowest rank of the node creates it.
  void share_board() {
    const bool leads = local_rank() == 0;
    if (leads) board_ = StatusBoard::create(size());
    const auto names = communicator_->all_gather_text(leads ? board_->name() : "", "boards");
    const int mine = nodes()[static_cast<size_t>(rank())];
    const auto leader = static_cast<size_t>(std::find(nodes().begin(), nodes().end(), mine) - nodes().begin());
    if (!board_) board_ = StatusBoard::open(names[leader], size());
    board_->join(rank());
    basis_.board = board_.get();
  }
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
    if (!is_consequence && !has_launcher()) messenger_->raise(code, text);
    // Waits up to a second for the cause: another rank may be about to report its own failure, or a rank may be gone.
    // A rank that is gone reports nothing, so this rank reports it.
    for (int i = 0; is_consequence && !lost && !heard() && i < 20 && board_->first_failure()->code == code; ++i) {
      if (watch_) lost = watch_->lost();
      if (!lost) sleep_ms(50);
    }
    if (const auto alarm = heard(); is_consequence && !lost && alarm) end_after(*alarm);
    const bool reports = !has_launcher() && board_->claim_report();
    if (reports && report) report(account(lost));
    if (is_consequence && !has_launcher()) messenger_->raise(code, account(lost));
    if (!reports && !has_launcher()) sleep_ms(1000);  // mpirun must not kill the rank that reports
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
    messenger_->raise(static_cast<ExitCode>(128 + SIGTERM), "");
    std::signal(SIGTERM, SIG_DFL);
    kill(getpid(), SIGTERM);  // this thread blocks the signal, but the main thread does not
  }
  // Another rank has failed, or has ended on purpose. Such an alarm has no text.
  void heed(const Alarm& received) {
    if (received.rank >= size()) return;  // no rank of this run sends this
    Alarm alarm = received;
    alarm.error = printable(alarm.error, 2000);
    {
      const std::lock_guard lock(alarm_mutex_);
      alarm_ = alarm;
    }
    if (!failing_.try_lock()) return;  // this rank fails too: fail_after() sees the alarm
    const bool same_node = nodes()[static_cast<size_t>(alarm.rank)] == nodes()[static_cast<size_t>(rank())];
    if (!alarm.is_lost || !same_node) end_after(alarm);
    failing_.unlock();  // the board of this node knows more about the lost rank
    fail_after(alarm.rank, alarm.code, alarm.error, options_.report);
  }
  std::optional<Alarm> heard() const {
    const std::lock_guard lock(alarm_mutex_);
    return alarm_;
  }
  [[noreturn]] void end_after(const Alarm& alarm) {
    if (alarm.error.empty()) {
      board_->end(rank(), static_cast<int>(alarm.code));
    } else {
      board_->fail(rank(), alarm.code, alarm.error);
      const bool reports = board_->claim_report();
      if (reports && options_.report) options_.report(alarm.error);
      if (!reports) sleep_ms(1000);  // torchrun must not kill the rank that reports
    }
    end_all(alarm.code);
  }
  [[noreturn]] void end_all(ExitCode code) const {
    if (!has_launcher()) messenger_->end_others(code);  // otherwise the launcher ends the other ranks
    std::_Exit(static_cast<int>(code));
  }
  static void sleep_ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

  const WorldOptions options_;
  int exit_code_ = 0;
  std::mutex failing_;
  mutable std::mutex alarm_mutex_;
  std::optional<Alarm> alarm_;  // guarded by alarm_mutex_
  std::vector<std::unique_ptr<GroupBasis>> other_bases_;
  std::unique_ptr<PeerWatch> watch_;  // only without a launcher
};

}  // namespace

std::unique_ptr<World> make_ranks_world(std::unique_ptr<Messenger> messenger, const WorldOptions& options,
                                        std::shared_ptr<StatusBoard> board) {
  return std::make_unique<RanksWorld>(std::move(messenger), options, std::move(board));
}

std::unique_ptr<Communicator> make_group_with(World& world, Device* device, const WorldOptions& options) {
  return dynamic_cast<RanksWorld&>(world).group_with(device, options);
}

}  // namespace tessera
