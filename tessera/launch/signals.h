// SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask a run to save and end. A second signal, with number n, ends the run
// immediately with exit code 128 + n, except if it arrives within kSameRequest after the first signal. SIGINT and
// SIGHUP have no effect if the parent ignores them (launch/surroundings.h).
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>

#include "tessera/base/periodic_thread.h"

namespace tessera {

// A signal that arrives within this time after the first signal belongs to the same request to stop. One request can
// send several signals to a process: timeout(1) signals its child and then the complete process group, and batch
// systems signal the processes of a step and also the shell that started them.
inline constexpr std::chrono::milliseconds kSameRequest{100};

// Handles the signals from construction to destruction. Only one object may exist at a time. After destruction the
// signals are ignored: the run has ended, and its exit code must not change.
class StopSignals {
 public:
  // At its start, a run connects the ranks and reads data and model. This can take long or never end, for example if a
  // file server or the writer of a pipe hangs, and nobody asks received() meanwhile. If a signal arrives during the
  // start, and the start continues for kStartGrace, a thread calls the function of before_end() and then `end_process`,
  // which must not return. Throws RunError if the thread cannot start.
  static constexpr std::chrono::milliseconds kStartGrace{1000};
  explicit StopSignals(std::function<void(int signal)> end_process);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the number of the first signal, or 0
  void before_end(std::function<void()> release);
  // The run now checks received() regularly. From here on, the thread calls no function.
  void end_start();

 private:
  void watch_start(const std::function<void(int signal)>& end_process);

  std::mutex mutex_;
  bool starts_ = true;
  std::function<void()> release_;
  std::optional<PeriodicThread> watch_;
};

// Calls end_start() at the end of its scope.
class StartScope {
 public:
  explicit StartScope(StopSignals* signals) : signals_(signals) {}  // may be null
  ~StartScope() {
    if (signals_) signals_->end_start();
  }
  StartScope(const StartScope&) = delete;
  StartScope& operator=(const StartScope&) = delete;

 private:
  StopSignals* signals_;
};

}  // namespace tessera
