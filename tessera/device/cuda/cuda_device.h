// NVIDIA GPUs as devices. This header does not depend on CUDA: a program built without CUDA links absent.cc, which
// finds no device.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

struct CudaDeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
};

struct CudaInfo {
  bool built = false;                   // this program has the CUDA back end
  std::string toolkit;                  // version of the build's toolkit, "13.0"
  std::string architectures;            // the GPU architectures that it was compiled for, "80 90"
  bool has_driver = false;              // the machine has NVIDIA's driver, of any version
  std::string problem;                  // why no device is visible; empty if at least one is visible
  std::vector<CudaDeviceInfo> devices;  // visible under CUDA_VISIBLE_DEVICES, in the order of their ordinals
};

// What CUDA sees on this machine. Never throws, even without a driver.
CudaInfo cuda_info();

// A GPU. Allocations are zeroed, and the ledger records exactly the requested bytes. The driver allocates pieces of 2
// MiB, so a few large allocations waste the least memory. Makes the GPU current in the calling thread, which must be
// the thread that computes on it. Throws UsageError if there is no such GPU, RunError if CUDA fails.
std::unique_ptr<Device> make_cuda_device(int ordinal);

// The GPU for a rank of this machine: `local_rank` modulo the number of visible GPUs. A launcher may show each rank
// only its own GPU (`srun --gpus-per-task`). The result is then 0.
int cuda_ordinal_of_rank(int local_rank);

// Memory on a GPU for the driver's context, our kernels' code, cuBLASLt's code, and some of the CUDA graphs of blocks
// (engine/block_graphs.h). The ledger counts it under Category::context before it is allocated. Measured on H200s with
// driver 580: 532 to 540 MiB for models of 0.5 to 7 billion parameters, independent of batch sizes. The remaining bytes
// of this constant are for graphs.
inline constexpr int64_t kCudaContextBytes = int64_t{576} << 20;
// The number of block graphs that fit into these remaining bytes plus 1.5 % of the bytes that a process holds on its
// GPU. This keeps the ledger within 2 % of the measured memory. A graph took 145 to 157 KiB in measurements.
constexpr int64_t most_cuda_graphs(int64_t held_bytes) {
  constexpr int64_t kGraphBytes = int64_t{150} << 10, kLeftBytes = int64_t{36} << 20;
  return (kLeftBytes + held_bytes / 1000 * 15) / kGraphBytes;
}

struct CudaMemory {
  int64_t total_bytes = 0;   // of the GPU
  int64_t usable_bytes = 0;  // by this process: free memory plus what the ledger holds
};
// `device` must be a CUDA device.
CudaMemory cuda_memory_of(Device& device);
// The PCI address of a CUDA device, "0000:1B:00.0", independent of CUDA_VISIBLE_DEVICES. Empty if CUDA fails.
std::string cuda_pci_address_of(Device& device);
// A worldwide unique id of a GPU or of a partition of one (MIG): 32 hexadecimal digits.
std::string cuda_uuid_of(Device& device);

// Page-locked host memory: GPUs copy from and to it asynchronously at full speed. A block has the requested size,
// rounded up to full pages. A freed block is kept for the next request of its size. Before a new block is allocated,
// kept blocks are freed until all blocks together fit into the ledger's peak. Freeing a buffer does not wait: copies
// from and to the buffer must have finished. The device is of kind cpu. `pool` must outlive it.
// A block is ordinary memory, with slower copies, if more than `most_bytes` would be locked or if the system refuses to
// lock the block.
std::unique_ptr<Device> make_pinned_host_device(ThreadPool& pool,
                                                int64_t most_bytes = std::numeric_limits<int64_t>::max());
// Why the latest block that could not be locked is ordinary memory. Empty if every block was locked, or if `host` is
// not a pinned host device.
std::string reason_of_unpinned(const Device& host);

}  // namespace tessera
