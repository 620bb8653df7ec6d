#include "tessera/launch/forwarded_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>

#include "tessera/launch/surroundings.h"

namespace tessera {

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
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                          std::chrono::duration<double>(seconds));
  for (;;) {
    while (const int signal = next()) {
      if (signal != SIGCHLD) return signal;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return 0;
    pollfd event{descriptor_, POLLIN, 0};
    poll(&event, 1, static_cast<int>(left) + 1);
  }
}

}  // namespace tessera
