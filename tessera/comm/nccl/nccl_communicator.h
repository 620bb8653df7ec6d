// Collectives among GPUs. This header does not depend on NCCL: a program built without NCCL links absent.cc.
#pragma once

#include <memory>

#include "tessera/comm/collective_watch.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Books NCCL's GPU memory under Category::context, for a group and the groups split from it. A group needs kGroupBytes
// from its first collective on an array until its end. The first of these groups also books kKernelBytes, which stay
// booked. The sizes were measured on two and four H200s connected by NVLink, with NCCL 2.28; the part
// of mapped memory, 40 MiB, on two.
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
  static constexpr int64_t kGroupBytes = int64_t{530} << 20;   // buffers to and from the other ranks, and mapped memory

  Device& device_;
  bool has_kernels_ = false;
};

// A group of GPUs, one per rank. Arrays go through NCCL on CUDA streams. Host calls go through `host`, which has the
// same ranks. `node` is the number of this rank's node. Every rank of the group must call this function. For a group of
// one rank, it returns `host`. For several ranks, it throws RunError if NCCL is not available.
//
// With NCCL 2.28 or newer, the group has an allocator (nccl_windows.h). Its memory is mapped if all ranks of the group
// are on one node.
//
// NCCL starts in the group's first collective on an array. This collective waits for all ranks. If the start fails, it
// throws CommunicationError or OutOfMemoryError. A group that moves no array does not start NCCL and needs no GPU
// memory. An example is the group of all ranks in most hybrid runs. NCCL sums in its own order. This order is the same
// whenever the same ranks repeat a call.
//
// Each started group has a CollectiveWatch with the options `watch`. If a collective exceeds the time limit, or NCCL
// reports a failure, CollectiveWatch calls watch.fail, which ends the run. Without CollectiveWatch, the thread that
// waits for the GPU would not notice such a failure. NCCL's end has the same time limit; its start has 30 s more.
// CollectiveWatch queries events, so a CUDA graph must not capture collectives.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, int node,
                                                     std::shared_ptr<NcclMemory> memory, const WatchOptions& watch);

// The version of the NCCL that a group would use, such as "2.28.3", or the reason why NCCL is not available.
std::string nccl_description();

}  // namespace tessera
