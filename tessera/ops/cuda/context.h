// What every launch of a CUDA kernel needs: the stream, the fixed scratch, and properties of the GPU. The scratch is
// allocated before the first launch, and no launch waits for the GPU, so a CUDA graph can capture the launches.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/base/math.h"
#include "tessera/device/cuda/cuda_check.h"
#include "tessera/device/device.h"

namespace tessera::cuda {

// The scratch holds a call's intermediate results, for example partial sums. A call that needs more scratch than
// kScratchBytes processes its data in pieces.
inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

struct Context {
  cudaStream_t stream = nullptr;
  std::byte* scratch = nullptr;  // kScratchBytes, reused by every call
  int num_multiprocessors = 0;
  int code_major = 0;        // major compute capability that the kernels in use were compiled for: the GPU's or lower
  int max_shared_bytes = 0;  // the most shared memory that a thread block can request
  bool has_wgmma = false;    // the GPU has compute capability 9.0, which sm_90a code needs, and code_major is 9

  template <typename T>
  T* scratch_of() const {
    return reinterpret_cast<T*>(scratch);
  }
  template <typename T>
  static constexpr int64_t scratch_elems() {
    return kScratchBytes / static_cast<int64_t>(sizeof(T));
  }
};

// Returns the major compute capability that the program's code for the current GPU was compiled for. If the program has
// only code for older GPUs, the result may be lower than the GPU's own major compute capability. The code then uses no
// features of newer GPUs. Throws RunError if the program has no code that the GPU can run.
int code_major_for_this_gpu();

// Throws an error with the kernel's name if a launch failed, for example because the launch requested too much shared
// memory. Must be called after each launch.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

// Allows `kernel` to use `bytes` of dynamic shared memory. If a kernel uses more than 48 KiB, this must be called on
// each device before the first launch. Repeated calls cost little.
template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(ceil_divide(count, per_block));
}

}  // namespace tessera::cuda
