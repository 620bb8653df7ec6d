// A round-robin tournament: which pairs are tested at the same time.
#pragma once

#include <utility>
#include <vector>

namespace tessera {

using Pair = std::pair<int, int>;  // first < second

// All pairs of 0 … n−1, each once. The pairs of a round are disjoint. There are n − 1 rounds for an even n, and n
// rounds for an odd n > 1. With an odd n, one number has no partner in each round.
std::vector<std::vector<Pair>> pair_rounds(int n);

}  // namespace tessera
