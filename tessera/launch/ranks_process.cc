#include "tessera/launch/ranks_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <random>

#include "tessera/base/error.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/comm/tcp/socket.h"
#include "tessera/launch/signals.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
// The time from a failure until the launcher kills the ranks that are still alive. Until then, they can release the
// output folder. A communication failure is usually a consequence, so there is more time for the rank that knows its
// cause.
constexpr auto kGrace = std::chrono::milliseconds(1000), kGraceForCause = std::chrono::milliseconds(4000);
constexpr int kLookAround_ms = 100;
// The longest time that a signal waits for the first rank.
constexpr auto kStartOfRanks = std::chrono::milliseconds(1500);

// The exit code 255, for a rank whose status the system does not give. An unknown end is not a success.
constexpr int kUnknownStatus = 255 << 8;

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

Environment environment_of_rank(const Environment& environment, int rank, int num_ranks, int port,
                                const LauncherLink& link) {
  Environment result = environment;
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, std::string>>{{"RANK", std::to_string(rank)},
                                                                  {"WORLD_SIZE", std::to_string(num_ranks)},
                                                                  {"LOCAL_RANK", std::to_string(rank)},
                                                                  {"LOCAL_WORLD_SIZE", std::to_string(num_ranks)},
                                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                                  {"MASTER_PORT", std::to_string(port)},
                                                                  {kLauncherVariable, link.to_string()}}) {
    result[name] = value;
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Runs in the child. Calls only functions that are safe between fork and exec. `kept`: a descriptor that the program
// inherits; -1: none.
[[noreturn]] void become_rank(int rank, char** arguments, char** environment, int kept, pid_t parent,
                              const sigset_t& signals) {
  setpgid(0, 0);  // signals of the terminal reach only the launcher, which forwards them to the ranks
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  if (rank > 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  if (kept >= 0) fcntl(kept, F_SETFD, 0);
  execve(arguments[0], arguments, environment);
  constexpr char kText[] = "error: cannot start the program of a rank\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(127);
}

// The processes of the ranks. The destructor kills those that have not ended.
class Ranks {
 public:
  explicit Ranks(int num_ranks) : pids_(static_cast<size_t>(num_ranks)), end_{} {
    end_.statuses.resize(static_cast<size_t>(num_ranks));
  }
  ~Ranks() {
    kill_all();
    for (const pid_t pid : pids_) {
      while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(int rank, std::vector<std::string> arguments, const Environment& environment, int kept,
             const sigset_t& signals) {
    std::vector<std::string> assignments;
    for (const auto& [name, value] : environment) assignments.push_back(name + "=" + value);
    std::vector<char*> argv = pointers(arguments), envp = pointers(assignments);
    const pid_t parent = getpid(), child = fork();
    if (child == 0) become_rank(rank, argv.data(), envp.data(), kept, parent, signals);
    if (child < 0) throw RunError("launcher", fmt::format("cannot start rank {}: {}", rank, strerror(errno)));
    pids_[static_cast<size_t>(rank)] = child;
    ++num_running_;
  }
  int num_running() const { return num_running_; }
  bool is_running(int rank) const { return pids_[static_cast<size_t>(rank)] > 0; }
  // Returns the ranks whose processes have ended since the previous call, and keeps their status.
  std::vector<int> newly_ended() {
    std::vector<int> ended;
    for (size_t i = 0; i < pids_.size(); ++i) {
      const pid_t found = pids_[i] == 0 ? 0 : waitpid(pids_[i], &end_.statuses[i], WNOHANG);
      if (found == 0 || (found < 0 && errno == EINTR)) continue;
      if (found < 0) end_.statuses[i] = kUnknownStatus;
      pids_[i] = 0;
      --num_running_;
      ended.push_back(static_cast<int>(i));
    }
    return ended;
  }
  // Sends a signal to every running rank that has joined the board: the rank then handles signals. Returns whether the
  // signal reached a rank. One rank is enough, because a signal to one rank stops all ranks.
  bool forward(int signal, const StatusBoard& board) const {
    bool reached = false;
    for (size_t i = 0; i < pids_.size(); ++i) {
      const int rank = static_cast<int>(i);
      const bool is_ready = !board.is_shared() || (board.pid_of(rank) != 0 && !board.has_ended(rank));
      if (pids_[i] > 0 && is_ready) reached |= kill(pids_[i], signal) == 0;
    }
    return reached;
  }
  void kill_all() const {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);
    }
  }
  RanksEnd& end() { return end_; }

 private:
  std::vector<pid_t> pids_;  // 0: not started, or ended
  int num_running_ = 0;
  RanksEnd end_;
};

// Whether a rank has ended because a signal stopped the run.
bool has_stopped(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::kSavedAfterSignal);
}

}  // namespace

RanksEnd run_ranks(const std::string& program, int num_ranks, const std::vector<std::string>& arguments,
                   const Environment& environment, const StatusBoard& board, ForwardedSignals& signals) {
  Ranks ranks(num_ranks);
  {
    const Socket listener = listen_at("127.0.0.1", 0);
    if (!listener) throw RunError("launcher", fmt::format("cannot listen at 127.0.0.1: {}", strerror(errno)));
    std::vector<std::string> command = arguments;
    command.insert(command.begin(), program);
    const std::string token = random_token();
    for (int rank = 0; rank < num_ranks; ++rank) {
      const LauncherLink link{
          .board = board.name(), .listener = rank == 0 ? listener.descriptor() : -1, .token = token};
      ranks.start(rank, command, environment_of_rank(environment, rank, num_ranks, own_port(listener), link),
                  link.listener, signals.usual());
    }
  }
  RanksEnd& end = ranks.end();
  bool has_lost = false;
  int undelivered = 0;  // a signal that no rank has received yet; 0: none
  std::optional<Clock::time_point> failed_at, signalled_at;
  while (ranks.num_running() > 0) {
    pollfd event{signals.descriptor(), POLLIN, 0};
    poll(&event, 1, undelivered ? 20 : kLookAround_ms);
    while (const int signal = signals.next()) {
      if (signal == SIGCHLD) continue;
      if (!signalled_at) signalled_at = Clock::now();
      if (!end.forwarded.empty() && Clock::now() - *signalled_at <= kSameRequest) continue;
      end.forwarded.push_back(signal);
      end.gave_up = end.gave_up || undelivered || end.forwarded.size() > 2;
      undelivered = signal;
    }
    if (undelivered && ranks.forward(undelivered, board)) undelivered = 0;
    if (undelivered && Clock::now() - *signalled_at > kStartOfRanks) end.gave_up = true;  // no rank has started yet
    const std::vector<int> ended = ranks.newly_ended();
    // The board is read after newly_ended(), so it has every failure that was reported before these ends. If a rank has
    // reported a failure, later deaths are only consequences of the failure.
    const auto failure = board.first_failure();
    const bool has_failed = failure.has_value();
    bool has_left = false;
    for (const int rank : ended) {
      const int status = end.statuses[static_cast<size_t>(rank)];
      const bool in_order = board.has_ended(rank) || status == 0 || has_stopped(status);
      has_lost |= !in_order;
      if (!in_order && !failed_at && !has_failed) end.lost.push_back(rank);
      // Ranks end together. If a rank stops while another one has not ended, it does not wait for the others.
      for (int other = 0; other < num_ranks && has_stopped(status); ++other) {
        has_left |= ranks.is_running(other) && !board.has_ended(other);
      }
    }
    if (!failed_at && (has_lost || has_left || has_failed)) failed_at = Clock::now();
    const bool is_open = failure && failure->code == ExitCode::kCommunication && !has_lost;
    const auto grace = is_open ? kGraceForCause : kGrace;
    if (end.gave_up || (failed_at && Clock::now() - *failed_at > grace)) ranks.kill_all();
  }
  if (end.lost.empty()) end.lost = board.found_lost();
  // If several ranks were found dead at the same moment, those that waited for no other rank probably died first.
  std::stable_partition(end.lost.begin(), end.lost.end(), [&](int rank) { return !board.is_waiting(rank); });
  return std::move(end);
}

std::string text_of_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace tessera
