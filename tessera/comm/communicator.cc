#include "tessera/comm/communicator.h"

#include <algorithm>

namespace tessera {

int64_t communication_scratch_bytes(int size) {
  // The scratch has room for two chunks from each rank. The chunks are large enough to reach the memory bandwidth. The
  // scratch is small compared with a unit.
  return size == 1 ? 0 : std::max<int64_t>(int64_t{8} << 20, int64_t{size} << 16);
}

}  // namespace tessera
