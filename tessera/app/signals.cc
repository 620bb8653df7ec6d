#include "tessera/app/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tessera {
namespace {

// A signal handler can reach nothing but what is static.
std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void handle(int signal) {
  if (received_signal.exchange(signal) != 0) _exit(128 + signal);
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : kSignals) ::signal(signal, SIG_DFL);
}

int StopSignals::received() const {
  return received_signal;
}

}  // namespace tessera
