#include "tessera/base/random.h"

namespace tessera {

uint64_t RandomStream::next_below(uint64_t n) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % n;  // a multiple of n: below it every remainder is equally likely
  uint64_t x;
  do x = next_u64();
  while (x >= limit);
  return x % n;
}

}  // namespace tessera
