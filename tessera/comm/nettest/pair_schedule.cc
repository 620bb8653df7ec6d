#include "tessera/comm/nettest/pair_schedule.h"

#include <algorithm>

namespace tessera {

// The circle method. The numbers occupy places, and the numbers of place p and place `places` − 1 − p form a pair. From
// round to round, the number in the last place stays there, and the numbers in the other places move by one place.
std::vector<std::vector<Pair>> pair_rounds(int n) {
  std::vector<std::vector<Pair>> rounds;
  const int places = n + n % 2;  // with an odd n, the last place is empty
  for (int round = 0; n > 1 && round < places - 1; ++round) {
    std::vector<Pair> pairs;
    const auto at = [&](int place) { return place == places - 1 ? place : (place + round) % (places - 1); };
    for (int place = 0; place < places / 2; ++place) {
      const int a = at(place), b = at(places - 1 - place);
      if (std::max(a, b) < n) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
    std::sort(pairs.begin(), pairs.end());
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

}  // namespace tessera
