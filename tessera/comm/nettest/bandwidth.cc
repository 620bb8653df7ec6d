#include "tessera/comm/nettest/bandwidth.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

const char* name_of(NetCollective collective) {
  switch (collective) {
    case NetCollective::all_reduce:
      return "all_reduce";
    case NetCollective::all_gather:
      return "all_gather";
    case NetCollective::reduce_scatter:
      return "reduce_scatter";
    case NetCollective::broadcast:
      return "broadcast";
  }
  return "?";
}

namespace {

bool is_sharded(NetCollective collective) {
  return collective == NetCollective::all_gather || collective == NetCollective::reduce_scatter;
}

}  // namespace

NetMessage message_of(NetCollective collective, int64_t bytes, size_t element_bytes, int num_ranks) {
  const auto element = static_cast<int64_t>(element_bytes);
  const int64_t parts = is_sharded(collective) ? num_ranks : 1, aligned = 16 / element;
  int64_t count = bytes / element / parts;
  if (parts > 1 && count >= aligned) count -= count % aligned;
  count = std::max<int64_t>(count, 1);
  return {.num_elems = count * parts, .count = count, .bytes = count * parts * element};
}

double bus_factor(NetCollective collective, int num_ranks) {
  const double others = static_cast<double>(num_ranks - 1) / num_ranks;
  switch (collective) {
    case NetCollective::all_reduce:
      return 2 * others;
    case NetCollective::all_gather:
    case NetCollective::reduce_scatter:
      return others;
    case NetCollective::broadcast:
      return 1;
  }
  return 1;
}

double algorithm_bandwidth(int64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

std::vector<int64_t> stepped_sizes(int64_t min_bytes, int64_t max_bytes, int64_t factor) {
  TESSERA_ASSERT(min_bytes > 0 && factor >= 2);
  std::vector<int64_t> sizes;
  for (int64_t bytes = min_bytes; bytes <= max_bytes; bytes *= factor) {
    sizes.push_back(bytes);
    if (bytes > max_bytes / factor) break;  // bytes * factor would exceed max_bytes, and might overflow
  }
  return sizes;
}

}  // namespace tessera
