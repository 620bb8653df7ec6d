// The clock for durations. It never goes backwards, and does not follow changes of the date.
#pragma once

#include <chrono>

namespace tessera {

// Seconds since an unspecified moment.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
