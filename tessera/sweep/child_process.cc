#include "tessera/sweep/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/uninterrupted.h"
#include "tessera/launch/signals.h"
#include "tessera/store/file.h"

namespace tessera {
namespace {

constexpr int kTick_ms = 1000;
constexpr size_t kMostRequests = 3;  // this many stop requests kill the child

// Runs in the child. Calls only functions that are safe between fork and exec.
[[noreturn]] void become(char** arguments, int log, pid_t parent, const sigset_t& signals) {
  setpgid(0, 0);  // signals of the terminal reach only the sweep, which passes them on
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

pid_t start(std::vector<std::string> arguments, const std::filesystem::path& log, const sigset_t& signals) {
  const int descriptor =
      uninterrupted([&] { return open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (descriptor < 0) throw_write_error(log, errno, 0);
  arguments.insert(arguments.begin(), "tessera");
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(argv.data(), descriptor, parent, signals);
  const int reason = errno;
  close(descriptor);
  if (child < 0) throw RunError("sweep", fmt::format("cannot start a run: {}", std::strerror(reason)));
  return child;
}

}  // namespace

int StopRequests::take(ForwardedSignals& signals) {
  int first_new = 0;
  while (const int signal = signals.next()) {
    if (signal == SIGCHLD) continue;
    const auto now = std::chrono::steady_clock::now();
    if (received.empty()) first_at_ = now;
    if (!received.empty() && now - first_at_ <= kSameRequest) continue;
    received.push_back(signal);
    if (first_new == 0) first_new = signal;
  }
  return first_new;
}

int run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log, ForwardedSignals& signals,
              StopRequests& stops, const std::function<void()>& tick) {
  const pid_t child = start(arguments, log, signals.usual());
  int status = 0;
  for (;;) {
    tick();
    pollfd event{signals.descriptor(), POLLIN, 0};
    poll(&event, 1, kTick_ms);
    if (const int signal = stops.take(signals)) {
      kill(child, stops.received.size() < kMostRequests ? signal : SIGKILL);
    }
    const pid_t ended = uninterrupted([&] { return waitpid(child, &status, WNOHANG); });
    if (ended < 0) throw RunError("sweep", fmt::format("cannot wait for a run: {}", std::strerror(errno)));
    if (ended == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

}  // namespace tessera
