// Weights in NF4 (Kernels::dequantize).
#include <algorithm>
#include <array>

#include "tessera/base/nf4.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kThreadWeights = 8;  // of a thread at a time: 4 bytes of codes, and 16 bytes of 16-bit weights
constexpr int kSteps = static_cast<int>(kNf4GroupWeights) / (kThreads * kThreadWeights);

struct Tables {
  float map[256], levels[16];
};

template <typename T>
struct alignas(sizeof(T) * kThreadWeights) Eight {
  T values[kThreadWeights];
};

// One thread block dequantizes one group. kWhole: n is a multiple of 8, and `values` is aligned to 8 elements.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const Nf4Group* __restrict__ groups, T* __restrict__ values, int64_t n,
                      const __grid_constant__ Tables tables) {
  __shared__ float scales[kNf4GroupBlocks], levels[16];
  const Nf4Group& group = groups[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  uint32_t codes[kSteps];
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(group.codes.data());
#pragma unroll
  for (int step = 0; step < kSteps; ++step) codes[step] = words[step * kThreads + thread];
  const float map = tables.map[group.scales.data()[thread]];
  scales[thread] = __fadd_rn(__fmul_rn(map, group.scale_range), group.scale_mean);
  if (thread < 16) levels[thread] = tables.levels[thread];
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * kNf4GroupWeights;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int at = (step * kThreads + thread) * kThreadWeights;
    const float scale = scales[at / static_cast<int>(kNf4BlockWeights)];
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < kThreadWeights; ++i) {
      // The first weight of a byte has its upper half.
      const uint32_t code = codes[step] >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u;
      eight.values[i] = from_acc<T>(__fmul_rn(levels[code], scale));
    }
    if constexpr (kWhole) {
      if (first + at < n) *reinterpret_cast<Eight<T>*>(values + first + at) = eight;
    } else {
#pragma unroll
      for (int i = 0; i < kThreadWeights; ++i) {
        if (first + at + i < n) values[first + at + i] = eight.values[i];
      }
    }
  }
}

static_assert(kThreads == kNf4GroupBlocks);

}  // namespace

void CudaKernels::dequantize(View groups, View values) {
  const int64_t n = values.num_elems();
  TESSERA_ASSERT(groups.dtype == DType::nf4 && groups.num_elems() == nf4_groups(n));
  if (n == 0) return;
  Tables tables;
  std::ranges::copy(nf4_scale_map(), tables.map);
  std::ranges::copy(kNf4Levels, tables.levels);
  with_float_type(values.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const to = reinterpret_cast<T*>(values.data);
    const auto* const from = reinterpret_cast<const Nf4Group*>(groups.data);
    const auto blocks = static_cast<unsigned>(groups.num_elems());
    const bool whole = n % kThreadWeights == 0 && reinterpret_cast<uintptr_t>(to) % alignof(Eight<T>) == 0;
    if (whole) {
      dequantize_kernel<T, true><<<blocks, kThreads, 0, context_.stream>>>(from, to, n, tables);
    } else {
      dequantize_kernel<T, false><<<blocks, kThreads, 0, context_.stream>>>(from, to, n, tables);
    }
  });
  check_launch("dequantize_kernel");
}

}  // namespace tessera::cuda
