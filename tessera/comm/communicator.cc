#include "tessera/comm/communicator.h"

#include <algorithm>

namespace tessera {

int64_t Communicator::max(int64_t value, const char* what) {
  if (size() == 1) return value;
  for (const std::string& text : all_gather_text(std::to_string(value), what)) {
    value = std::max<int64_t>(value, std::stoll(text));
  }
  return value;
}

int64_t communication_scratch_bytes(int size) {
  // A reduction receives chunks from all ranks into the scratch: at most two chunks from each rank at the same time.
  // The chunks are large enough to reach the memory bandwidth. The scratch is small compared with a unit's parameters.
  return size == 1 ? 0 : std::max<int64_t>(int64_t{8} << 20, int64_t{size} << 16);
}

}  // namespace tessera
