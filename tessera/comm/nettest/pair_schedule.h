// A schedule for tests of all pairs, as in a round-robin tournament. The pairs of a round are tested at the same time.
#pragma once

#include <utility>
#include <vector>

namespace tessera {

using Pair = std::pair<int, int>;  // first < second

// Divides all pairs of the numbers 0 … n − 1 into rounds. Each pair is in one round. The pairs of a round share no
// number. There are n − 1 rounds for an even n, and n rounds for an odd n > 1. With an odd n, one number has no partner
// in each round.
std::vector<std::vector<Pair>> pair_rounds(int n);

}  // namespace tessera
