#include "tessera/ops/cpu/optimizer.h"

#include <algorithm>
#include <cmath>

#include "tessera/ops/cpu/dispatch.h"

namespace tessera::cpu {

namespace {

// Ranges are given out on demand, some to each thread: else all would wait for the one that shares its core with
// something else. Longer ones are faster, whose pages the hardware fetches ahead.
constexpr int64_t kRangesPerThread = 8, kRangeUnit = 4096;

// torch.optim.AdamW, in its order of operations:
//   p *= 1 − lr·decay;  m += (g − m)·(1 − β₁);  v = β₂·v + (1 − β₂)·g²;  p −= (lr / bc₁)·m / (√v / √bc₂ + ε)
// Gradients of G are widened, and a copy of the parameters is written as R, on the way: a pass of its own would move
// them through memory again.
template <bool kCopies, typename T, DType G, DType R>
void update(T* __restrict p, const typename Element<G>::Type* __restrict g, T* __restrict m, T* __restrict v,
            typename Element<R>::Type* __restrict copy, int64_t count, const AdamWStep& step, double weight_decay) {
  const T shrink = static_cast<T>(1 - step.learning_rate * weight_decay);
  const T beta2 = static_cast<T>(step.beta2), rest1 = static_cast<T>(1 - step.beta1);
  const T rest2 = static_cast<T>(1 - step.beta2), scale = static_cast<T>(step.gradient_scale);
  const T step_size = static_cast<T>(step.learning_rate / step.bias_correction1);
  const T root_correction = static_cast<T>(std::sqrt(step.bias_correction2)), epsilon = static_cast<T>(step.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T gradient = static_cast<T>(Element<G>::load(g[i])) * scale;
    m[i] += (gradient - m[i]) * rest1;
    v[i] = v[i] * beta2 + rest2 * gradient * gradient;
    p[i] = p[i] * shrink - step_size * (m[i] / (std::sqrt(v[i]) / root_correction + epsilon));
    if constexpr (kCopies) copy[i] = Element<R>::store(p[i]);
  }
}

// Calls body with the constant of the type of 16 bits that `dtype` names, else with that of T.
template <typename T, typename Body>
void with_16_bits_or(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::bf16:
      return body(std::integral_constant<DType, DType::bf16>{});
    case DType::f16:
      return body(std::integral_constant<DType, DType::f16>{});
    default:
      TESSERA_ASSERT(dtype == dtype_of<T>());
      return body(std::integral_constant<DType, dtype_of<T>()>{});
  }
}

}  // namespace

void adamw(Team& team, View parameters, View gradients, View m, View v, const AdamWStep& step, View rounded) {
  const int64_t count = parameters.num_elems();
  TESSERA_ASSERT(gradients.num_elems() == count && m.num_elems() == count && v.num_elems() == count);
  const auto run = [&]<bool kCopies, typename T, DType G, DType R>() {
    auto* const g = reinterpret_cast<const typename Element<G>::Type*>(gradients.data);
    auto* const copy = reinterpret_cast<typename Element<R>::Type*>(rounded.data);
    const int64_t parts = kRangesPerThread * team.num_threads();
    const int64_t range = (count / parts / kRangeUnit + 1) * kRangeUnit;
    team.for_each((count + range - 1) / range, [&](int64_t, int64_t i) {
      const int64_t begin = i * range, end = std::min(begin + range, count);
      const auto part = [&](int64_t from, int64_t to, double weight_decay) {
        update<kCopies, T, G, R>(parameters.as<T>() + from, g + from, m.as<T>() + from, v.as<T>() + from,
                                 kCopies ? copy + from : nullptr, to - from, step, weight_decay);
      };
      const int64_t border = std::clamp(step.num_decayed, begin, end);
      part(begin, border, step.weight_decay);
      part(border, end, 0);
    });
  };
  with_float_type(parameters.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_16_bits_or<T>(gradients.dtype, [&](auto G) {
      if (!rounded) return run.template operator()<false, T, G(), G()>();
      with_16_bits_or<T>(rounded.dtype, [&](auto R) { run.template operator()<true, T, G(), R()>(); });
    });
  });
}

}  // namespace tessera::cpu
