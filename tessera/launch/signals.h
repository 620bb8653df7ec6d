// SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask a run to save and end. A second one ends it at once with 128 + its number.
// SIGINT and SIGHUP do nothing if the parent ignores them (app/surroundings.h).
#pragma once

#include <chrono>

namespace tessera {

// What comes so soon after the first signal is the same request: timeout(1) sends it to its child and then to the whole
// group, and batch systems send to a step's processes and to the shell that has started them.
inline constexpr std::chrono::milliseconds kSameRequest{100};

// Handles the signals from construction to destruction; one at a time. Later ones are ignored: the run has ended, and
// its exit code stands.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the signal's number, or 0
};

}  // namespace tessera
