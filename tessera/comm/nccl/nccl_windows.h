// GPU memory that the ranks of a group map into each other's address spaces (NCCL: symmetric windows). If both arrays
// of an all_gather are in such memory, the GPUs' copy engines move the data, and the multiprocessors are left to the
// kernels that run at the same time.
#pragma once

#include <map>

#include "tessera/comm/nccl/nccl_library.h"
#include "tessera/device/device.h"

namespace tessera {

class NcclWindows final : public Allocator {
 public:
  explicit NcclWindows(const NcclLibrary& nccl) : nccl_(nccl) {}

  // Maps the memory that contains `data`, unless it is mapped already or does not come from this allocator. Collective.
  // Where the GPUs cannot map each other's memory, NCCL maps nothing, and its collectives work as without windows.
  ncclResult_t open(ncclComm_t comm, const std::byte* data);

 private:
  struct Block {
    int64_t bytes = 0;
    ncclComm_t comm = nullptr;  // null until the block is mapped
    NcclWindow window = nullptr;
  };
  std::byte* take(int64_t bytes) override;
  void give_back(std::byte* data, int64_t bytes) override;

  const NcclLibrary& nccl_;
  std::map<const std::byte*, Block> blocks_;
};

}  // namespace tessera
