// Sums and maxima over the threads of a warp or a block, in a fixed order.
#pragma once

#include <cuda_runtime.h>

namespace tessera::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Reduces over the lanes of a warp. All lanes must call this function. Every lane gets the result.
template <typename Op, typename T>
__device__ inline T warp_reduce(T value, Op op) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

// Reduces over the threads of a block of `num_warps` full warps. All threads must call this function. Every thread gets
// the result. `shared` has room for one value per warp. The caller must not change `shared` before the next barrier of
// the block, because slower threads may still read it.
template <typename Op, typename T>
__device__ inline T block_reduce(T value, Op op, T* shared, int num_warps) {
  value = warp_reduce(value, op);
  if (num_warps == 1) return value;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kWarp == 0) shared[thread / kWarp] = value;
  __syncthreads();
  value = shared[0];
  for (int w = 1; w < num_warps; ++w) value = op(value, shared[w]);
  return value;
}

}  // namespace tessera::cuda
