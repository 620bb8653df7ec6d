// Helpers for the tests of attention on a GPU.
#pragma once

#include <numeric>

#include "gpu_testing.h"
#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera::testing {

inline int64_t rows_of(const std::vector<int32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

// Returns the index of each sequence's first row, followed by the total number of rows.
inline std::vector<int32_t> starts_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts{0};
  for (const int32_t n : lengths) starts.push_back(starts.back() + n);
  return starts;
}

// Returns whether this GPU is a Hopper GPU and this program has code for it, so that the kernels with TMA
// (cuda/attention.h) can run.
inline bool is_hopper() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major == 9 && minor == 0 && cuda::code_major_for_this_gpu() == 9;
}

// The kernels for GPUs before sm_80, which use no tensor cores.
inline cuda::CudaKernels kernels_of_older_gpus() {
  return {*rig().gpu, false, 7};
}

}  // namespace tessera::testing
