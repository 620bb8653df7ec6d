// Measures by how much the clocks of other ranks differ from rank 0's clock.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

// Three readings of clocks, in nanoseconds since 1970: rank 0's clock (`before`), then another rank's clock (`other`),
// then rank 0's clock again (`after`).
struct ClockExchange {
  int64_t before = 0, other = 0, after = 0;
};

// The other rank's clock is ahead of rank 0's clock by `seconds`. The error of this value is at most `uncertainty`
// seconds.
struct ClockOffset {
  double seconds = 0, uncertainty = 0;
  // Whether the two clocks certainly differ by more than `limit_s` seconds.
  bool exceeds(double limit_s) const { return (seconds < 0 ? -seconds : seconds) - uncertainty > limit_s; }
};

// Computes the offset from the exchange with the shortest round trip (after - before). The uncertainty is half of this
// round trip. `exchanges` must not be empty.
ClockOffset offset_of(const std::vector<ClockExchange>& exchanges);

// Returns, on every rank, the offset of each rank's clock from rank 0's clock. The index is the rank. Collective.
std::vector<ClockOffset> clock_offsets(Communicator& world);

}  // namespace tessera
