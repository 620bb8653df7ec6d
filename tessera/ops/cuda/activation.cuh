// Activations and their derivatives.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::cuda {

// GELU in its tanh form, with the formula of the BLOOM model in the library transformers: x·s, where
//   s = (1 + tanh u)/2 = 1/(1 + e^(−2u)) and u = kGeluScale·x·(1 + kGeluCubic·x²).
// kGeluScale is √(2/π), rounded as in BLOOM.
inline constexpr double kGeluScale = 0.79788456, kGeluCubic = 0.044715;

// Returns s. With kFast, uses the hardware's approximate exponential and division. Their errors are far smaller than
// the rounding of the results to 16-bit elements.
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
