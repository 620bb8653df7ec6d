// Turns errors of the CUDA runtime into exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include "tessera/base/error.h"

namespace tessera::cuda {

// The remedy of an OutOfMemoryError for GPU memory, from a call of CUDA or one of its libraries.
inline constexpr const char* kNoMemoryRemedy =
    "`nvidia-smi` shows which processes hold the GPU's memory, and `tessera plan` shows how much this run needs";

// Throws OutOfMemoryError if `error` means that no GPU memory is left, otherwise RunError. The message contains `call`.
[[noreturn]] void fail(const char* call, cudaError_t error);

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(call, error);
}

}  // namespace tessera::cuda
