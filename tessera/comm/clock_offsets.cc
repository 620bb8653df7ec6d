#include "tessera/comm/clock_offsets.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "tessera/base/error.h"

namespace tessera {

namespace {

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ClockOffset offset_of(const std::vector<ClockExchange>& exchanges) {
  TESSERA_ASSERT(!exchanges.empty());
  const ClockExchange best = *std::min_element(
      exchanges.begin(), exchanges.end(),
      [](const ClockExchange& a, const ClockExchange& b) { return a.after - a.before < b.after - b.before; });
  const double round_trip = static_cast<double>(best.after - best.before) * 1e-9;
  return {static_cast<double>(best.other - best.before) * 1e-9 - round_trip / 2, round_trip / 2};
}

// No rank leaves a barrier before all ranks have entered it. In each round, the second reading of every rank is
// therefore between rank 0's first and third reading.
std::vector<ClockOffset> clock_offsets(Communicator& world) {
  constexpr int kRounds = 9;
  std::ostringstream mine;
  for (int round = 0; round < kRounds; ++round) {
    mine << wall_clock_ns() << ' ';
    world.barrier("clocks");
    mine << wall_clock_ns() << ' ';
    world.barrier("clocks");
    mine << wall_clock_ns() << ' ';
  }
  const auto texts = world.all_gather_text(mine.str(), "clocks");
  const auto readings_of = [](const std::string& text) {
    std::vector<ClockExchange> readings(kRounds);
    std::istringstream stream(text);
    for (ClockExchange& reading : readings) stream >> reading.before >> reading.other >> reading.after;
    return readings;
  };
  const std::vector<ClockExchange> first = readings_of(texts[0]);
  std::vector<ClockOffset> offsets(texts.size());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    std::vector<ClockExchange> exchanges = readings_of(texts[rank]);
    for (size_t i = 0; i < exchanges.size(); ++i) {
      exchanges[i].before = first[i].before;
      exchanges[i].after = first[i].after;
    }
    offsets[rank] = offset_of(exchanges);
  }
  return offsets;
}

}  // namespace tessera
