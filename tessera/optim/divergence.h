// Detects that training diverges while the loss is still finite.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera {

// Whether a loss (in nats) has exploded: it is above ten times the larger of two losses. One is ln(vocabulary), the
// loss of a model without knowledge. The other is the loss of the run's first step. Noise between batches stays below
// this limit. A spike from which the loss recovers also stays below it.
inline bool has_exploded(double loss, double first_loss, int64_t vocab_size) {
  constexpr double kMultiple = 10;
  return loss > kMultiple * std::max(first_loss, std::log(static_cast<double>(vocab_size)));
}

}  // namespace tessera
