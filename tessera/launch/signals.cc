#include "tessera/launch/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "tessera/launch/surroundings.h"

namespace tessera {
namespace {

// A signal handler can access only static data.
std::atomic<int> received_signal{0};
std::atomic<int64_t> received_at_ms{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

void handle(int signal) {
  const int64_t now = now_ms();
  int64_t first = 0;
  if (received_at_ms.compare_exchange_strong(first, now)) {
    received_signal = signal;
  } else if (now - first > kSameRequest.count()) {
    _exit(128 + signal);
  }
}

}  // namespace

StopSignals::StopSignals(std::function<void(int signal)> end_process) {
  received_signal = 0;
  received_at_ms = 0;
  constexpr double kInterval_s = 0.05;
  watch_.emplace("signals during the start", kInterval_s,
                 [this, end_process = std::move(end_process)] { watch_start(end_process); });
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) {
    if (!parent_ignores(signal)) sigaction(signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  end_start();
  for (const int signal : kSignals) {
    if (!parent_ignores(signal)) ::signal(signal, SIG_IGN);
  }
}

int StopSignals::received() const {
  return received_signal;
}

void StopSignals::before_end(std::function<void()> release) {
  const std::lock_guard lock(mutex_);
  release_ = std::move(release);
}

void StopSignals::watch_start(const std::function<void(int signal)>& end_process) {
  const std::lock_guard lock(mutex_);
  const int64_t first = received_at_ms;
  if (!starts_ || first == 0 || now_ms() - first <= kStartGrace.count()) return;
  if (release_) release_();
  end_process(received_signal);
}

void StopSignals::end_start() {
  {
    const std::lock_guard lock(mutex_);  // if the thread is ending the process, this call does not return
    starts_ = false;
  }
  watch_->stop();
}

}  // namespace tessera
