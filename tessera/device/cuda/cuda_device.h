// NVIDIA GPUs as devices. This header names nothing of CUDA: a program built without it links absent.cc, which finds no
// device.
#pragma once

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
  std::string toolkit;                  // that it was built with, "13.0"
  std::string architectures;            // that it holds code for, "80 90"
  bool has_driver = false;              // the machine has NVIDIA's driver, of whatever version
  std::string problem;                  // why there are no devices, or empty
  std::vector<CudaDeviceInfo> devices;  // that CUDA_VISIBLE_DEVICES leaves, by ordinal
};

// What CUDA sees on this machine; never throws, also without a driver.
CudaInfo cuda_info();

// A GPU: allocations are zeroed and of exactly the bytes asked for in the ledger (the driver hands out memory in pieces
// of 2 MiB: few large allocations waste least). Makes the GPU current in the calling thread, which must be the one that
// computes on it. Throws UsageError where there is no such GPU, RunError where CUDA fails.
std::unique_ptr<Device> make_cuda_device(int ordinal);

// The GPU of a rank of this machine: that of its number, counted round where fewer are visible, as `srun
// --gpus-per-task` shows each rank its own alone.
int cuda_ordinal_of_rank(int local_rank);

// What the driver's context, the code of our kernels and cuBLASLt's, and some of the blocks' graphs take on a GPU,
// booked under Category::context before it is taken: 532 to 540 MiB were seen on H200s with driver 580 for models of
// 0.5 to 7 billion parameters, whatever the sizes of batches, and the rest is for graphs.
inline constexpr int64_t kCudaContextBytes = int64_t{576} << 20;
// How many graphs of a block's kernels take no more than what is left of that and 1.5 % of what a process holds on its
// GPU, so that its ledger is within 2 % of what is seen. A graph was seen to take 145 to 157 KiB.
constexpr int64_t most_cuda_graphs(int64_t held_bytes) {
  constexpr int64_t kGraphBytes = int64_t{150} << 10, kLeftBytes = int64_t{36} << 20;
  return (kLeftBytes + held_bytes / 1000 * 15) / kGraphBytes;
}

struct CudaMemory {
  int64_t total_bytes = 0;   // of the GPU
  int64_t usable_bytes = 0;  // by this process: what is free now, and what its ledger holds
};
// `device` must be a CUDA device.
CudaMemory cuda_memory_of(Device& device);
// Where a CUDA device is in its machine, "0000:1B:00.0", whatever CUDA_VISIBLE_DEVICES says; empty where CUDA fails.
std::string cuda_pci_address_of(Device& device);
// What tells a GPU, or a part that it was partitioned into (MIG), from all others of all machines: 32 hexadecimal
// digits.
std::string cuda_uuid_of(Device& device);

// Host memory that GPUs copy from and to at full speed and without waiting: page-locked, each block of exactly its size
// in whole pages, and kept for the next of that size where the ledger's peak leaves room. Giving a buffer back waits
// for nothing: copies from and to it must be done. A device of kind cpu. `pool` must outlive it.
std::unique_ptr<Device> make_pinned_host_device(ThreadPool& pool);

}  // namespace tessera
