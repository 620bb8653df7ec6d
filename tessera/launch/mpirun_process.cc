#include "tessera/launch/mpirun_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/launch/rank_watch.h"
#include "tessera/launch/signals.h"
#include "tessera/launch/surroundings.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxNoise = 64 << 10;
// The time from a failure until this launcher kills the ranks that are still alive. kGrace applies if mpirun ends them
// itself, which usually happens earlier. kOwnGrace applies with Hydra (the mpirun of MPICH), which never ends them.
// Open MPI's mpirun waits as long as kOwnGrace before it ends the ranks.
constexpr auto kGrace = std::chrono::milliseconds(3000);
constexpr auto kOwnGrace = std::chrono::milliseconds(1000);
constexpr int kLookAround_ms = 100;
// The longest time that a signal waits for the first rank.
constexpr auto kStartOfRanks = std::chrono::milliseconds(1500);

Environment rank_environment(const Environment& environment, const std::string& link) {
  Environment result = environment;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) result.erase(name);
  add_mpirun_variables(mpi_flavour(), result);
  result[kLauncherVariable] = link;
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Runs in the child. Calls only functions that are safe between fork and exec.
[[noreturn]] void become(char** arguments, char** environment, int output, pid_t parent, const sigset_t& signals) {
  setpgid(0, 0);  // signals of the terminal reach only the launcher, which forwards them to the ranks
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

pid_t start(std::vector<std::string> arguments, const Environment& environment, int output, const sigset_t& signals) {
  std::vector<std::string> assignments;
  for (const auto& [name, value] : environment) assignments.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(assignments);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), output, parent, signals);
  if (child < 0) throw RunError("launcher", fmt::format("cannot start mpirun: {}", std::strerror(errno)));
  return child;
}

// Reads all available data. Appends it to `text` while `text` has fewer than kMaxNoise bytes, and drops the remaining
// data. Returns false at the end of the stream.
bool drain(int descriptor, std::string& text) {
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 && errno == EAGAIN;
    if (text.size() < kMaxNoise) text.append(buffer, static_cast<size_t>(count));
  }
}

// Sends a signal to every rank that is alive. Returns whether the signal reached at least one rank. One rank is enough,
// because a signal to one rank stops all ranks.
bool forward(int signal, const StatusBoard& board) {
  bool reached = false;
  for (int rank = 0; rank < board.size(); ++rank) {
    if (!board.has_ended(rank) && board.is_there(rank)) reached |= kill(board.pid_of(rank), signal) == 0;
  }
  return reached;
}

void kill_ranks(const StatusBoard& board) {
  for (int rank = 0; rank < board.size(); ++rank) {
    if (board.is_there(rank)) kill(board.pid_of(rank), SIGKILL);
  }
}

// The beginning of a command's output.
std::string beginning_of(const std::string& command) {
  const auto close = [](std::FILE* pipe) { pclose(pipe); };
  std::unique_ptr<std::FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) return "";
  std::string text(1024, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
  while (std::fgetc(pipe.get()) != EOF) {
  }  // reads the remaining output, because a closed pipe would kill the command
  return text;
}

}  // namespace

ForwardedSignals::ForwardedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) {
    if (!parent_ignores(signal)) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, &usual_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

ForwardedSignals::~ForwardedSignals() {
  close(descriptor_);
  sigprocmask(SIG_SETMASK, &usual_, nullptr);
}

int ForwardedSignals::next() {
  signalfd_siginfo info;
  return read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

int ForwardedSignals::wait(double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (;;) {
    while (const int signal = next()) {
      if (signal != SIGCHLD) return signal;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return 0;
    pollfd event{descriptor_, POLLIN, 0};
    poll(&event, 1, static_cast<int>(left) + 1);
  }
}

MpirunEnd run_mpirun(const std::string& mpirun, int num_ranks, const std::vector<std::string>& arguments,
                     const Environment& environment, const StatusBoard& board, StreamSocket& streams,
                     ForwardedSignals& signals) {
  int output[2];
  if (pipe2(output, O_CLOEXEC | O_NONBLOCK) != 0) throw RunError("launcher", "cannot create a pipe");
  fcntl(output[1], F_SETFL, 0);  // the ranks' writes may block, but the launcher's reads must not
  std::vector<std::string> command = mpirun_options(mpi_flavour(), num_ranks);
  command.insert(command.begin(), mpirun);
  std::string program(4096, '\0');
  program.resize(static_cast<size_t>(std::max<ssize_t>(0, readlink("/proc/self/exe", program.data(), program.size()))));
  command.push_back(program);
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t child = start(std::move(command), rank_environment(environment, board.name() + ":" + streams.name()),
                            output[1], signals.usual());
  close(output[1]);

  MpirunEnd end;
  int status = 0;
  int undelivered = 0;  // a signal that no rank has received yet; 0: none
  bool running = true;
  std::optional<Clock::time_point> failed_at, signalled_at;
  RankWatch watch(board);
  const auto grace = mpirun_ends_ranks(mpi_flavour()) ? kGrace : kOwnGrace;
  while (running) {
    std::vector<pollfd> events{
        {signals.descriptor(), POLLIN, 0}, {streams.descriptor(), POLLIN, 0}, {output[0], POLLIN, 0}};
    watch.add_to(events);
    poll(events.data(), events.size(), undelivered ? 20 : kLookAround_ms);
    streams.serve();
    if (!drain(output[0], end.noise)) {
      close(output[0]);
      output[0] = -1;  // poll ignores it
    }
    while (const int signal = signals.next()) {
      if (signal == SIGCHLD) continue;
      if (!signalled_at) signalled_at = Clock::now();
      if (!end.forwarded.empty() && Clock::now() - *signalled_at <= kSameRequest) continue;
      end.forwarded.push_back(signal);
      if (undelivered || end.forwarded.size() > 2) kill(child, SIGTERM);
      undelivered = signal;
    }
    if (undelivered && forward(undelivered, board)) undelivered = 0;
    if (undelivered && Clock::now() - *signalled_at > kStartOfRanks) {  // no rank has started yet
      kill(child, SIGTERM);
      undelivered = 0;
    }
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended < 0) end.wait_error = errno;
    running = ended == 0;
    // After a failure, mpirun (except MPICH's Hydra) ends the other ranks. The launcher kills ranks that are alive
    // after `grace`.
    const std::vector<int> lost = watch.newly_lost();
    // The board is read after newly_lost(), so it has every failure that was reported before the deaths in `lost`. If a
    // rank has reported a failure, these deaths are only consequences of the failure.
    const bool has_failed = board.first_failure().has_value();
    if (!failed_at && !has_failed) end.lost = lost;
    if (!failed_at && (!lost.empty() || has_failed)) failed_at = Clock::now();
    if (running && failed_at && Clock::now() - *failed_at > grace) kill_ranks(board);
    if (running && failed_at && Clock::now() - *failed_at > 2 * kGrace) kill(child, SIGKILL);  // mpirun does not react
  }
  if (end.lost.empty()) end.lost = board.found_lost();
  // If several ranks were found dead at the same moment, those that waited for no other rank probably died first.
  std::stable_partition(end.lost.begin(), end.lost.end(), [&](int rank) { return !board.is_waiting(rank); });
  if (!end.lost.empty()) end.signal_of_lost = watch.signal_of(end.lost[0]);
  if (output[0] >= 0) {
    drain(output[0], end.noise);
    close(output[0]);
  }
  end.was_killed = end.wait_error == 0 && WIFSIGNALED(status);
  if (end.was_killed || end.wait_error != 0) kill_ranks(board);  // they would continue without mpirun
  end.code = end.was_killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

MpiFlavour flavour_of_mpirun(const std::string& path) {
  return parse_mpi_flavour(beginning_of("'" + path + "' --version 2>/dev/null"));
}

}  // namespace tessera
