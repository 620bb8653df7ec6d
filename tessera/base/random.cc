#include "tessera/base/random.h"

#include <cmath>
#include <numbers>

namespace tessera {

double RandomStream::next_normal() {
  const double u = 1.0 - next_uniform();  // (0, 1]: its logarithm is finite
  const double v = next_uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t RandomStream::next_below(uint64_t n) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % n;  // a multiple of n: every remainder is equally likely below it
  uint64_t x;
  do x = next_u64();
  while (x >= limit);
  return x % n;
}

}  // namespace tessera
