// Detects that training diverges while the loss is still finite.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera {

// Returns whether a loss (in nats) has exploded. The limit is ten times the larger of two losses: ln(vocab_size), which
// is the loss of a model that gives all tokens the same probability, and the loss of the run's first step. This limit
// is well above the usual differences between batches, and above the usual short spikes of the loss.
inline bool has_exploded(double loss, double first_loss, int64_t vocab_size) {
  constexpr double kMultiple = 10;
  return loss > kMultiple * std::max(first_loss, std::log(static_cast<double>(vocab_size)));
}

}  // namespace tessera
