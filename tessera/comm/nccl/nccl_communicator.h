// Collectives among GPUs. This header does not depend on NCCL: a program built without NCCL links absent.cc.
#pragma once

#include <memory>

#include "tessera/comm/collective_watch.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Books NCCL's GPU memory under Category::context, for a group and the groups split from it. A group takes the memory
// when it first moves an array. The sizes were measured on two and four H200s connected by NVLink, with NCCL 2.28.
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

// A group of GPUs, one per rank. Arrays go through NCCL on CUDA streams. Host calls go through `host`, which has the
// same ranks. NCCL starts when the group moves its first array. A group that moves no array takes no memory, for
// example the group of all ranks in most hybrid runs. NCCL sums in its own order, which is the same whenever the same
// ranks repeat a call. If NCCL exceeds the time limit or reports a failure on any rank, the watch calls the `fail` of
// its options, which ends the run. Without the watch, the thread that waits for the GPU would not notice such a
// failure. NCCL's start and end have a time limit too. The watch queries events; therefore a CUDA graph must not
// capture collectives. make_nccl_communicator() is collective. Throws RunError: NCCL is not available. The first
// collective waits for all ranks. If the start fails, the first collective throws CommunicationError or
// OutOfMemoryError.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     std::shared_ptr<NcclMemory> memory, const WatchOptions& watch);

// The version of the NCCL that a group would use, such as "2.28.3", or the reason why NCCL is not available.
std::string nccl_description();

}  // namespace tessera
