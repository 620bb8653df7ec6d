// SIGTERM, SIGINT and SIGUSR1 ask a run to save and end; a second one ends it at once with 128 + its number.
#pragma once

namespace tessera {

// Handles the signals from construction to destruction; one at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int received() const;  // the signal's number, or 0
};

}  // namespace tessera
