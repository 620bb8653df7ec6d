// Collectives among GPUs. This header names nothing of NCCL: a program built without it links absent.cc.
#pragma once

#include <memory>

#include "tessera/comm/collective_watch.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Books under Category::context what NCCL takes on a GPU, for a group and those split from it. A group takes it when it
// first moves an array. Seen on two and four H200s joined by NVLink, NCCL 2.28.
class NcclMemory {
 public:
  explicit NcclMemory(Device& device) : device_(device) {}
  void begin_group() {
    device_.ledger().add(Category::context, has_kernels_ ? kGroupBytes : kKernelBytes + kGroupBytes);
    has_kernels_ = true;
  }
  void end_group() { device_.ledger().remove(Category::context, kGroupBytes); }

 private:
  static constexpr int64_t kKernelBytes = int64_t{390} << 20;  // kernels and their stacks
  static constexpr int64_t kGroupBytes = int64_t{490} << 20;   // buffers to and from the other ranks

  Device& device_;
  bool has_kernels_ = false;
};

// A group of GPUs, one a rank: arrays go through NCCL on CUDA streams, host calls through `host`, whose ranks are the
// group. NCCL starts with the first array: a group that moves none, as the world of most hybrid runs, takes nothing.
// NCCL sums in an order of its own, the same whenever the same ranks repeat a call. Collective.
// What NCCL does not end within the time limit, its start and end included, or finds to have failed on any rank, fails
// the run through the watch's options: the thread that waits for the GPU would not hear of it. The watch asks events,
// so that a CUDA graph may not capture collectives. RunError: no NCCL here. The first collective waits for all ranks; a
// start that fails is its CommunicationError, or OutOfMemoryError.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::shared_ptr<NcclMemory> memory, const WatchOptions& watch);

// The version of the NCCL that would be used, "2.28.3", or why there is none.
std::string nccl_description();

}  // namespace tessera
