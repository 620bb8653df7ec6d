#include "tessera/base/random.h"

namespace tessera {

uint64_t RandomStream::next_below(uint64_t n) {
  // `limit` is a multiple of n. If x < limit, all values of x % n are therefore equally likely.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  uint64_t x;
  do x = next_u64();
  while (x >= limit);
  return x % n;
}

}  // namespace tessera
