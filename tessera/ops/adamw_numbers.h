// AdamW's arithmetic, for CPUs and GPUs.
#pragma once

#include <cmath>

#include "tessera/base/math.h"
#include "tessera/ops/kernels.h"

namespace tessera {

// Computes the same as torch.optim.AdamW, in the same order of operations. bc₁ and bc₂ are the bias corrections:
//   p *= 1 − lr·decay;  m += (g − m)·(1 − β₁);  v = β₂·v + (1 − β₂)·g²;  p −= (lr / bc₁)·m / (√v / √bc₂ + ε)
// This header decides which products and sums are computed together, with one rounding (fused multiply-add). Compilers
// must not decide this: files that use the header are compiled without contraction. x86 CPUs and GPUs treat denormal
// numbers as 0. Therefore GPUs and x86 CPUs with FMA compute the same bits.
template <typename T>
struct AdamWNumbers {
  explicit AdamWNumbers(const AdamWStep& step)
      : shrink(static_cast<T>(1 - step.learning_rate * step.weight_decay)),
        beta2(static_cast<T>(step.beta2)),
        rest1(static_cast<T>(1 - step.beta1)),
        rest2(static_cast<T>(1 - step.beta2)),
        scale(static_cast<T>(step.gradient_scale)),
        step_size(static_cast<T>(step.learning_rate / step.bias_correction1)),
        root_correction(static_cast<T>(std::sqrt(step.bias_correction2))),
        epsilon(static_cast<T>(step.epsilon)) {}

  // Updates `count` consecutive elements of arrays that do not overlap. `own_shrink` is `shrink`, or 1 for elements
  // without weight decay.
  template <int64_t count, AdamWWrites writes = AdamWWrites::all>
  constexpr void update(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, T own_shrink) const {
#if !defined(__CUDACC__) && !defined(__clang__)  // clang allows no directive here, and vectorizes the loop without it
#pragma omp simd
#endif
    for (int64_t i = 0; i < count; ++i) {
      const T gradient = g[i] * scale;
      const T first = multiply_add(gradient - m[i], rest1, m[i]);
      const T second = multiply_add(v[i], beta2, rest2 * gradient * gradient);
      if constexpr (writes != AdamWWrites::moments) {
        p[i] = multiply_add(p[i], own_shrink, -(step_size * (first / (std::sqrt(second) / root_correction + epsilon))));
      }
      if constexpr (writes != AdamWWrites::parameters) {
        m[i] = first;
        v[i] = second;
      }
    }
  }

  T shrink;  // the factor on parameters that decay
  T beta2, rest1, rest2, scale, step_size, root_correction, epsilon;
};

}  // namespace tessera
