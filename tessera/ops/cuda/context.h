// What every CUDA kernel's launcher needs: the stream and the fixed scratch. Nothing here allocates or waits after
// construction, so that all of it can be captured in a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/device/cuda/cuda_check.h"
#include "tessera/device/device.h"

namespace tessera::cuda {

// Scratch of one call: partial sums, deltas, parts of split attention. Calls that need more work in pieces.
inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

struct Context {
  cudaStream_t stream = nullptr;
  std::byte* scratch = nullptr;  // kScratchBytes, reused by every call
  int num_multiprocessors = 0;
  int code_major = 0;        // of the compute capability that the kernels in use were compiled for: the GPU's or below
  int max_shared_bytes = 0;  // that a block may ask for
  bool has_wgmma = false;    // compute capability 9.0, which alone runs code for sm_90a, and code_major 9

  template <typename T>
  T* scratch_of() const {
    return reinterpret_cast<T*>(scratch);
  }
  template <typename T>
  static constexpr int64_t scratch_elems() {
    return kScratchBytes / static_cast<int64_t>(sizeof(T));
  }
};

// The first number of the compute capability that the code for the current GPU was compiled for: a GPU also runs code
// for older ones, in which what they cannot do is left out. Throws RunError where the program has none for it.
int code_major_for_this_gpu();

// After a kernel's launch: a bad configuration throws here, naming the kernel.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

// More than 48 KiB of shared memory must be asked for, once a kernel and device; it costs little to ask again.
template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

inline unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace tessera::cuda
