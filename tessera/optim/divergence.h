// When a loss says that training diverges, though it is a finite number.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tessera {

// Whether a loss (nats) has exploded: it is above ten times the larger of ln(vocabulary), the loss of a model that
// knows nothing, and the loss of the run's first step. Noise of batches and spikes after which training recovers stay
// below that.
inline bool has_exploded(double loss, double first_loss, int64_t vocab_size) {
  constexpr double kMultiple = 10;
  return loss > kMultiple * std::max(first_loss, std::log(static_cast<double>(vocab_size)));
}

}  // namespace tessera
