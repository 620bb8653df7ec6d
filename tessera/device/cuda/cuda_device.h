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
  int num_multiprocessors = 0;
};

struct CudaInfo {
  bool built = false;                   // this program has the CUDA back end
  std::string toolkit;                  // version of the build's CUDA toolkit, "13.0"
  std::string architectures;            // the GPU architectures of the program's code, "80 90"
  bool has_driver = false;              // the machine has NVIDIA's driver, of any version
  std::string problem;                  // why no device is visible; empty if at least one is visible
  std::vector<CudaDeviceInfo> devices;  // visible under CUDA_VISIBLE_DEVICES, in the order of their ordinals
};

// What CUDA sees on this machine. Never throws, even without a driver.
CudaInfo cuda_info();

// Returns the visible GPU number `ordinal` as a device. Allocations are zeroed, and the ledger records exactly the
// requested bytes. The driver allocates multiples of 2 MiB, so few large allocations waste less memory than many small
// allocations. Makes the GPU current in the calling thread. Only this thread may compute on the GPU. Throws UsageError
// if no GPU has this number, RunError if CUDA fails.
std::unique_ptr<Device> make_cuda_device(int ordinal);

// The ordinal of the GPU for a rank: `local_rank`, the number of the rank on this machine, modulo the number of visible
// GPUs. A launcher may show each rank only its own GPU (`srun --gpus-per-task`). The ordinal is then 0.
int cuda_ordinal_of_rank(int local_rank);

// GPU memory for the driver's context, the code of our kernels and of cuBLASLt, and some of the CUDA graphs that the
// engine records per block (engine/block_graphs.h). The ledger counts this memory under Category::context before CUDA
// allocates it. Context and code took 532 to 540 MiB on H200s with driver 580, for models of 0.5 to 7 billion
// parameters, independent of batch sizes. The remaining 36 MiB of this constant are for graphs.
inline constexpr int64_t kCudaContextBytes = int64_t{576} << 20;
// The number of graphs that a process may record, if it holds `held_bytes` on its GPU. The graphs may use the remaining
// 36 MiB of kCudaContextBytes plus 1.5 % of `held_bytes`. With this limit, the bytes in the ledger differ from the
// measured memory by at most 2 %. One graph took 145 to 157 KiB in measurements.
constexpr int64_t most_cuda_graphs(int64_t held_bytes) {
  constexpr int64_t kGraphBytes = int64_t{150} << 10, kLeftBytes = int64_t{36} << 20;
  return (kLeftBytes + held_bytes / 1000 * 15) / kGraphBytes;
}

struct CudaMemory {
  int64_t total_bytes = 0;   // of the GPU
  int64_t usable_bytes = 0;  // by this process: free memory plus the bytes in the ledger
};
// `device` must be a CUDA device.
CudaMemory cuda_memory_of(Device& device);
// The PCI address of a CUDA device, "0000:1B:00.0", independent of CUDA_VISIBLE_DEVICES. Empty if CUDA fails.
std::string cuda_pci_address_of(Device& device);
// A worldwide unique id of a GPU or of a partition of one (MIG): 32 hexadecimal digits.
std::string cuda_uuid_of(Device& device);

// Page-locked host memory: GPUs copy from and to it asynchronously at full speed. A block has the requested size,
// rounded up to full pages. When a buffer is freed, the device keeps its block for the next request of the same size.
// Before the device allocates a new block, it returns kept blocks to the system, the largest first. It stops when all
// blocks, including the new block, together have at most as many bytes as the ledger's peak, or when no block is kept.
// Freeing a buffer does not wait: copies from and to the buffer must have finished. The device is of kind cpu. `pool`
// must outlive the device. A block stays ordinary memory, with slower copies, if the system refuses to lock it, or if
// the locked blocks would have more than `most_bytes` bytes in total.
std::unique_ptr<Device> make_pinned_host_device(ThreadPool& pool,
                                                int64_t most_bytes = std::numeric_limits<int64_t>::max());
// The reason why a block was not locked. If several blocks were not locked, the reason for the latest of them. Empty if
// every block was locked, or if `host` is not a pinned host device.
std::string reason_of_unpinned(const Device& host);

}  // namespace tessera
