// What the forward and the backward kernels on tensor cores share.
#pragma once

#include "tessera/ops/cuda/attention_mma.h"
#include "tessera/ops/cuda/attention_shapes.cuh"
#include "tessera/ops/cuda/mma.cuh"

namespace tessera::cuda {

// A warp has 16·kM rows. With two the tiles in shared memory are read half as often, which measured no faster.
inline constexpr int kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarp, kM = 1;
inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// Scores are kept times log₂e, so that a power of two stands for an exponential: score = q·k·scale + slope·key.
struct Scores {
  float scale, slope;
  __device__ Scores(float scale_of_products, float alibi_slope)
      : scale(scale_of_products * kLog2E), slope(alibi_slope * kLog2E) {}
  __device__ float bias(int key) const { return slope * static_cast<float>(key); }
};

// 2ˣ by the hardware: 2 ulp, 0 below 2^-126.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Calls body(T{}, D) with the type and the narrowest head that a kernel is made for.
template <typename Body>
void with_mma_kernel(DType dtype, int64_t head_dim, Body&& body) {
  using std::integral_constant;
  const auto with_head = [&](auto zero) {
    if (head_dim <= 64) return body(zero, integral_constant<int, 64>());
    if (head_dim <= 96) return body(zero, integral_constant<int, 96>());
    body(zero, integral_constant<int, 128>());
  };
  if (dtype == DType::f16) return with_head(Half{});
  with_head(Bf16{});
}

}  // namespace tessera::cuda
