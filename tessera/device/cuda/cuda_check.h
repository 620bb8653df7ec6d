// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/base/error.h"

namespace tessera::cuda {

// Remedy of an OutOfMemoryError on a GPU that no plan has predicted.
inline constexpr const char* kNoMemoryRemedy =
    "`nvidia-smi` shows which processes hold the GPU's memory, and `tessera plan` how much this run needs";

// Throws RunError naming the call, or OutOfMemoryError.
[[noreturn]] void fail(const char* call, cudaError_t error);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(call, error);
}

}  // namespace tessera::cuda
