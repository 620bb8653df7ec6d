#include "tessera/ops/cpu/optimizer.h"

#include <cmath>

#include "tessera/ops/cpu/dispatch.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainElems = 4096;

// torch.optim.AdamW, in its order of operations:
//   p *= 1 − lr·decay;  m += (g − m)·(1 − β₁);  v = β₂·v + (1 − β₂)·g²;  p −= (lr / bc₁)·m / (√v / √bc₂ + ε)
template <typename T>
void update(T* __restrict p, const T* __restrict g, T* __restrict m, T* __restrict v, int64_t count,
            const AdamWStep& step, double weight_decay) {
  const T shrink = static_cast<T>(1 - step.learning_rate * weight_decay);
  const T beta2 = static_cast<T>(step.beta2), rest1 = static_cast<T>(1 - step.beta1);
  const T rest2 = static_cast<T>(1 - step.beta2), scale = static_cast<T>(step.gradient_scale);
  const T step_size = static_cast<T>(step.learning_rate / step.bias_correction1);
  const T root_correction = static_cast<T>(std::sqrt(step.bias_correction2)), epsilon = static_cast<T>(step.epsilon);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T gradient = g[i] * scale;
    m[i] += (gradient - m[i]) * rest1;
    v[i] = v[i] * beta2 + rest2 * gradient * gradient;
    p[i] = p[i] * shrink - step_size * (m[i] / (std::sqrt(v[i]) / root_correction + epsilon));
  }
}

}  // namespace

void adamw(Team& team, View parameters, View gradients, View m, View v, const AdamWStep& step, View rounded) {
  const int64_t count = parameters.num_elems();
  TESSERA_ASSERT(gradients.num_elems() == count && m.num_elems() == count && v.num_elems() == count);
  const auto rounded_bytes = static_cast<int64_t>(size_of(rounded.dtype));
  with_float_type(parameters.dtype, [&](auto zero) {
    using T = decltype(zero);
    team.for_ranges(count, kGrainElems, [&](int64_t, int64_t begin, int64_t end) {
      auto part = [&](int64_t from, int64_t to, double weight_decay) {
        if (from >= to) return;
        for_pieces_as<T>(gradients, from, to, [&](const T* g, int64_t first, int64_t size) {
          update(parameters.as<T>() + first, g, m.as<T>() + first, v.as<T>() + first, size, step, weight_decay);
        });
      };
      const int64_t border = std::clamp(step.num_decayed, begin, end);
      part(begin, border, step.weight_decay);
      part(border, end, 0);
      if (rounded) {
        tessera::convert(parameters.as<T>() + begin, parameters.dtype, rounded.data + begin * rounded_bytes,
                         rounded.dtype, static_cast<size_t>(end - begin));
      }
    });
  });
}

}  // namespace tessera::cpu
