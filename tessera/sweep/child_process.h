// A run of a sweep as a child process of this program.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/launch/mpirun_process.h"

namespace tessera {

// The signals that asked a sweep to stop. A signal within kSameRequest of the first one belongs to the same request.
struct StopRequests {
  std::vector<int> received;  // in order

  bool any() const { return !received.empty(); }
  // Takes the signals that have arrived and adds new requests. Returns the signal of the first new request; 0: none.
  int take(ForwardedSignals& signals);

 private:
  std::chrono::steady_clock::time_point first_at_{};
};

// Runs this program with `arguments` as a child process, and waits for its end. Appends its standard output and error
// to the file `log`. Passes new stop requests to the child; the third request kills the child. Calls `tick` about once
// per second. Returns the exit code, or 128 + n if signal n killed the child. Throws RunError if the process or the log
// cannot be created.
int run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log, ForwardedSignals& signals,
              StopRequests& stops, const std::function<void()>& tick);

}  // namespace tessera
