// Measures the differences between the clocks of hosts.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// One exchange: rank 0 read its clock before and after another rank read its own. All values are in nanoseconds since
// the epoch.
struct ClockExchange {
  int64_t before = 0, other = 0, after = 0;
};

// The other clock is `seconds` ahead of rank 0's clock, plus or minus `uncertainty`.
struct ClockOffset {
  double seconds = 0, uncertainty = 0;
  // Whether the clocks certainly differ by more than `limit_s`.
  bool exceeds(double limit_s) const { return (seconds < 0 ? -seconds : seconds) - uncertainty > limit_s; }
};

// Uses the exchange with the shortest round trip. Half of this round trip is the uncertainty. `exchanges` must not be
// empty.
ClockOffset offset_of(const std::vector<ClockExchange>& exchanges);

// The offset of each rank's clock, by rank. Collective.
std::vector<ClockOffset> clock_offsets(Communicator& world);

}  // namespace tessera
