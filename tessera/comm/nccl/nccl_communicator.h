// Collectives among GPUs. This header names nothing of NCCL: a program built without it links absent.cc.
#pragma once

#include <memory>

#include "tessera/comm/collective_watch.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// What NCCL takes on a GPU for its kernels, their stacks and its buffers, booked under Category::context: 878 MiB were
// seen on two H200s joined by NVLink with NCCL 2.28.
inline constexpr int64_t kNcclBytes = int64_t{880} << 20;

// A group of GPUs, one a rank: arrays go through NCCL on CUDA streams, host calls through `host`, whose ranks are the
// group. NCCL sums in an order of its own, the same whenever the same ranks repeat a call. Collective.
// What NCCL does not end within the time limit, its start and end included, or finds to have failed on any rank, fails
// the run through the watch's options: the thread that waits for the GPU would not hear of it. Collectives that a CUDA
// graph captures are not watched.
// RunError: no NCCL here; CommunicationError.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, const WatchOptions& watch);

// The version of the NCCL that would be used, "2.28.3", or why there is none.
std::string nccl_description();

}  // namespace tessera
