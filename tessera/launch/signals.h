// SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask a run to save and end. A second signal, with number n, ends the run
// immediately with exit code 128 + n, except if it arrives within kSameRequest after the first signal. SIGINT and
// SIGHUP have no effect if the parent ignores them (launch/surroundings.h).
#pragma once

#include <chrono>

namespace tessera {

// A signal that arrives within this time after the first signal belongs to the same request to stop. One request can
// send several signals to a process: timeout(1) signals its child and then the complete process group, and batch
// systems signal the processes of a step and also the shell that started them.
inline constexpr std::chrono::milliseconds kSameRequest{100};

// Handles the signals from construction to destruction. Only one object may exist at a time. After destruction the
// signals are ignored: the run has ended, and its exit code must not change.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the number of the first signal, or 0
};

}  // namespace tessera
