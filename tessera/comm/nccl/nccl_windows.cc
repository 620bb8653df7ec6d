#include "tessera/comm/nccl/nccl_windows.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

ncclResult_t NcclWindows::open(ncclComm_t comm, const std::byte* data) {
  auto found = blocks_.upper_bound(data);
  if (found == blocks_.begin()) return ncclSuccess;
  --found;
  auto& [begin, block] = *found;
  if (data >= begin + block.bytes || block.comm) return ncclSuccess;
  block.comm = comm;
  return nccl_.window_register(comm, const_cast<std::byte*>(begin), static_cast<size_t>(block.bytes), &block.window,
                               kNcclSymmetric);
}

std::byte* NcclWindows::take(int64_t bytes) {
  const int64_t size = std::max<int64_t>(bytes, 1);
  void* data = nullptr;
  if (const ncclResult_t result = nccl_.mem_alloc(&data, static_cast<size_t>(size)); result != ncclSuccess) {
    cudaGetLastError();  // clears the error
    const std::string text = nccl_.text_of(result, nullptr);
    if (text.find("out of memory") != text.npos) return nullptr;
    throw RunError("GPU memory that ranks map", text, "Set NCCL_CUMEM_ENABLE=0, and NCCL uses other memory");
  }
  blocks_[static_cast<std::byte*>(data)].bytes = size;
  return static_cast<std::byte*>(data);
}

void NcclWindows::give_back(std::byte* data, int64_t) {
  cudaDeviceSynchronize();  // as cudaFree does: work may still use the memory. A later call reports errors of this work
  const Block block = blocks_.extract(data).mapped();
  if (block.window) nccl_.window_deregister(block.comm, block.window);
  nccl_.mem_free(data);
}

}  // namespace tessera
