// Runs a training of a sweep as a child process.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/launch/forwarded_signals.h"

namespace tessera {

// The requests to stop a sweep. Each request is a signal. A signal that arrives within kSameRequest (launch/signals.h)
// after the first request only repeats this request, and is not added.
struct StopRequests {
  std::vector<int> received;  // in order

  bool any() const { return !received.empty(); }
  // Reads the signals that have arrived, and adds the new requests. Returns the first new request, or 0 if there is
  // none.
  int take(ForwardedSignals& signals);

 private:
  std::chrono::steady_clock::time_point first_at_{};
};

// Runs this program with `arguments` as a child process, and waits for its end. Appends its standard output and error
// to the file `log`. Passes new stop requests to the child; the third request kills the child. Calls `tick` about once
// per second. Returns the child's exit code, or 128 + n if signal n killed the child. Throws RunError if the process or
// the log cannot be created.
int run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log, ForwardedSignals& signals,
              StopRequests& stops, const std::function<void()>& tick);

}  // namespace tessera
