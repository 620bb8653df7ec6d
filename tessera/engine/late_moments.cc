#include "tessera/engine/late_moments.h"

#include <algorithm>

namespace tessera {

// An evaluation between two updates makes one window much longer than the time of a step. Therefore begin() uses the
// shorter of the last two windows.
int64_t LateMoments::begin(double now) {
  late_elems_ = 0;
  if (ended_ < 0) return 0;
  const double window = now - ended_, shorter = std::min(window, last_window_);
  last_window_ = window;
  int64_t count = 0;
  for (const int64_t elems : elems_) {
    // Always defers at least one block. Otherwise a rate that was measured too low would never be measured again.
    if (count > 0 && static_cast<double>(late_elems_ + elems) > kShare * shorter * rate_) break;
    late_elems_ += elems;
    ++count;
  }
  return count;
}

void LateMoments::moments_ended(double now) {
  if (late_elems_ > 0 && now > ended_) rate_ = static_cast<double>(late_elems_) / (now - ended_);
}

}  // namespace tessera
