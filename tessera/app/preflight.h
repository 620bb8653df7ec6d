// Helpers for network tests: the memory that is free for messages, and the test before a training run (--preflight).
#pragma once

#include "tessera/app/verbs.h"
#include "tessera/base/record.h"
#include "tessera/comm/nettest/net_test.h"
#include "tessera/session/worker.h"

namespace tessera {

// The rank that can use the fewest bytes for buffers, and this number of bytes.
struct LeastMemory {
  int64_t bytes = 0;
  int rank = 0;
};
// Compares the memory of all ranks. Collective.
LeastMemory least_memory(Worker& worker);

// Halves `bytes` until the result is at most `memory_bytes` or at most 1 KiB.
int64_t fitting_size(int64_t bytes, int64_t memory_bytes);

// The check of --preflight: measures all_reduce for a few seconds before the run reads anything. Returns the record for
// summary.json; null without --preflight. Throws CommunicationError if the data is wrong or the bandwidth is below
// --preflight-min-busbw. Collective.
Record run_preflight(const Invocation& invocation);

}  // namespace tessera
