// Divides samples among micro-batches of a limited number of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct Packing {
  std::vector<int64_t> order;   // the samples, grouped by micro-batch; inside a group, in the given order
  std::vector<int64_t> starts;  // [micro-batches + 1]: micro-batch k has elements [starts[k], starts[k + 1]) of `order`
};

struct PackingLimits {
  int64_t tokens = 0;   // the most tokens of a micro-batch
  int64_t samples = 0;  // the most samples of a micro-batch
  // Only the newest micro-batch takes samples, so the samples keep their order.
  bool one_open = false;
};

// Best fit: takes the samples in the given order, and puts each of them into the micro-batch with the fewest free
// tokens that are enough. If no micro-batch has room, the sample begins the next one. Micro-batches are numbered in the
// order of their first samples. lengths[i] is the number of tokens of sample i, and at most limits.tokens.
//
// The result never has more micro-batches than with limits.one_open.
//
// The time grows linearly with the number of samples. The memory is about 24 bytes per sample, and 8 bytes per token of
// limits.tokens.
Packing best_fit(std::span<const int64_t> order, std::span<const int64_t> lengths, const PackingLimits& limits);

}  // namespace tessera
