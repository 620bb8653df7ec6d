// Measures the bandwidth of a communicator and checks the data that it delivers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/nettest/bandwidth.h"
#include "tessera/comm/world.h"

namespace tessera {

struct NetTest {
  NetCollective collective = NetCollective::all_reduce;
  int64_t bytes = 0;  // the size that the user requests; see message_of()
  DType dtype = DType::f32;
  int64_t warmup = 20, iterations = 50;
  uint64_t seed = 0;
  // Limits warm-up and iterations together to about this time, but makes at least one iteration. 0: no limit.
  double longest_s = 0;
};

struct NetResult {
  NetCollective collective = NetCollective::all_reduce;
  NetMessage message;
  int64_t iterations = 0;       // number of measured calls
  double seconds = 0;           // time of one call: the mean over the iterations and the ranks
  double algbw = 0, busbw = 0;  // GB/s
  int64_t wrong = 0;            // wrong elements on all ranks, in the checks before and after the measurement
};

// The bytes of the buffer that run_net_test() needs on each rank for this test.
int64_t net_buffer_bytes(const NetTest& test, int num_ranks);

// Runs one test. The collective works in place, like the engine's collectives. `buffer` is on `device` and has at least
// net_buffer_bytes(). Before and after the measurement, makes one more call and checks every element that each rank
// receives. All ranks get the same NetResult. Throws CommunicationError. Collective.
NetResult run_net_test(Communicator& group, Device& device, Buffer& buffer, const NetTest& test);

// The mean of the bus bandwidths, as nccl-tests prints it. 0 without results.
double average_busbw(const std::vector<NetResult>& results);

// The result of a pair of units. A unit is a node or, if the run has only one node, a rank.
struct NetPairResult {
  int first = 0, second = 0;
  NetResult result;
};

// Runs the test once for each pair of units, in rounds. The pairs of a round share no unit and run at the same time.
// All ranks of the two units form one group for the test. units[r] is the unit of rank r, numbered from 0: its
// node, or the rank itself. The result is the same on all ranks, ordered by `first`, then by `second`.
// Collective.
std::vector<NetPairResult> run_pair_tests(Communicator& world, Device& device, Buffer& buffer, const NetTest& test,
                                          const std::vector<int>& units);

// The unit with the lowest mean bus bandwidth over its pairs. `results` must not be empty.
struct SlowUnit {
  int unit = 0;
  double mean_busbw = 0;
};
SlowUnit slowest_unit(const std::vector<NetPairResult>& results);

// Bytes that each rank of this node can use for buffers now: a share of the free host memory, or the free memory of its
// GPU minus a reserve for NCCL. The maximum of int64_t if unknown.
int64_t free_bytes_for_buffers(Device& device, int local_ranks);

}  // namespace tessera
