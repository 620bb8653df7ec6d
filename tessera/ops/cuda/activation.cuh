// Activations and their derivatives.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::cuda {

// The tanh form of GELU in the formula of transformers' BLOOM: x·s with s = (1 + tanh u)/2 = 1/(1 + e^(−2u)) and u =
// k·x·(1 + 0.044715·x²). k = √(2/π), rounded as in BLOOM.
inline constexpr double kGeluScale = 0.79788456, kGeluCubic = 0.044715;

// For 16-bit elements the hardware's exponential and reciprocal are accurate enough: their error is roughly 2^-21 of
// the result.
template <bool kFast, typename A>
__device__ inline A gelu_sigmoid(A x) {
  const A exponent = A(-2 * kGeluScale) * x * (A(1) + A(kGeluCubic) * x * x);
  if constexpr (kFast) return __fdividef(1.0f, 1.0f + __expf(exponent));
  return A(1) / (A(1) + exp(exponent));
}

template <bool kFast, typename A>
__device__ inline A activate(Activation activation, A x) {
  if (activation == Activation::gelu_tanh) return x * gelu_sigmoid<kFast>(x);
  if (activation == Activation::relu) return x > A(0) ? x : A(0);
  return x;
}

// gradient · activation'(x)
template <bool kFast, typename A>
__device__ inline A activation_gradient(Activation activation, A gradient, A x) {
  if (activation == Activation::gelu_tanh) {
    const A s = gelu_sigmoid<kFast>(x);
    return gradient * (s + x * s * (A(1) - s) * A(2 * kGeluScale) * (A(1) + A(3 * kGeluCubic) * x * x));
  }
  if (activation == Activation::relu) return x > A(0) ? gradient : A(0);
  return gradient;
}

}  // namespace tessera::cuda
