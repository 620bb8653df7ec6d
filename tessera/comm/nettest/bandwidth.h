// The arithmetic of a bandwidth test. NVIDIA's nccl-tests use the same definitions (doc/PERFORMANCE.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

enum class NetCollective { all_reduce, all_gather, reduce_scatter, broadcast };

const char* name_of(NetCollective collective);

// The data that a call moves, for a size in bytes that the user requests. Letters as in communicator.h: R ranks, P
// elements of a full array, S = P / R.
struct NetMessage {
  int64_t num_elems = 0;  // P
  int64_t count = 0;      // the column "count": P, or S for all_gather and reduce_scatter
  int64_t bytes = 0;      // the column "size": the bytes of P elements
};

// Rounds `bytes` down to complete elements. For all_gather and reduce_scatter, rounds down to R shards of equal size. A
// shard of at least 16 bytes is also rounded down to a multiple of 16 bytes. The result has at least one element;
// for all_gather and reduce_scatter, each shard has at least one.
NetMessage message_of(NetCollective collective, int64_t bytes, size_t element_bytes, int num_ranks);

// Bus bandwidth (busbw) = algorithm bandwidth (algbw) × this factor: 2 (R − 1) / R for all_reduce, (R − 1) / R for
// all_gather and reduce_scatter, 1 for broadcast. If the implementation is optimal, busbw is the bandwidth of the
// slowest link, for any R. Tests with different numbers of ranks can therefore be compared by their busbw.
double bus_factor(NetCollective collective, int num_ranks);

// `bytes` / `seconds` of one call, in GB/s (10^9 bytes per second). 0 if `seconds` is not positive.
double algorithm_bandwidth(int64_t bytes, double seconds);

// Returns the sizes min, min·factor, min·factor² and so on, up to at most max. `factor` must be at least 2.
std::vector<int64_t> stepped_sizes(int64_t min_bytes, int64_t max_bytes, int64_t factor);

}  // namespace tessera
