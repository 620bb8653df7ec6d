// AdamW: one pass over parameters, moments and gradients, all state in registers.
#include <cmath>

#include "tessera/ops/cuda/arrays.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// The numbers of a step in the order of operations of torch.optim.AdamW:
//   p *= 1 − lr·decay;  m += (g − m)·(1 − β₁);  v = β₂·v + (1 − β₂)·g²;  p −= (lr / bc₁)·m / (√v / √bc₂ + ε)
template <typename P>
struct Numbers {
  P shrink, beta2, rest1, rest2, scale, step_size, root_correction, epsilon;
  int64_t num_decayed;

  explicit Numbers(const AdamWStep& step)
      : shrink(static_cast<P>(1 - step.learning_rate * step.weight_decay)),
        beta2(static_cast<P>(step.beta2)),
        rest1(static_cast<P>(1 - step.beta1)),
        rest2(static_cast<P>(1 - step.beta2)),
        scale(static_cast<P>(step.gradient_scale)),
        step_size(static_cast<P>(step.learning_rate / step.bias_correction1)),
        root_correction(static_cast<P>(std::sqrt(step.bias_correction2))),
        epsilon(static_cast<P>(step.epsilon)),
        num_decayed(step.num_decayed) {}

  __device__ void update(int64_t i, P gradient, P& p, P& m, P& v) const {
    gradient *= scale;
    m += (gradient - m) * rest1;
    v = v * beta2 + rest2 * gradient * gradient;
    p = p * (i < num_decayed ? shrink : P(1)) - step_size * (m / (sqrt(v) / root_correction + epsilon));
  }
};

// R: the type of the rounded copy; `rounded` may be null.
template <typename P, typename G, typename R, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(P* __restrict__ parameters, const G* __restrict__ gradients, P* __restrict__ m, P* __restrict__ v,
                 R* __restrict__ rounded, int64_t count, Numbers<P> numbers) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (begin + N <= count) {
    auto p = load_pack<P, N>(parameters + begin);
    auto first = load_pack<P, N>(m + begin);
    auto second = load_pack<P, N>(v + begin);
    const auto g = load_pack<G, N>(gradients + begin);
    Acc<R> copy[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      numbers.update(begin + j, static_cast<P>(g[j]), p.at[j], first.at[j], second.at[j]);
      copy[j] = static_cast<Acc<R>>(p.at[j]);
    }
    store_pack(parameters + begin, p);
    store_pack(m + begin, first);
    store_pack(v + begin, second);
    if (rounded) store_pack(rounded + begin, Pack<R, N>::of(copy));
    return;
  }
  for (int64_t i = begin; i < count; ++i) {
    numbers.update(i, static_cast<P>(to_acc(gradients[i])), parameters[i], m[i], v[i]);
    if (rounded) rounded[i] = from_acc<R>(parameters[i]);
  }
}

template <typename P, typename G, typename R>
void launch(const Context& context, View parameters, View gradients, View m, View v, const AdamWStep& step,
            R* rounded) {
  constexpr int N = kPackOf<P>;
  P *p = data_of<P>(parameters), *first = data_of<P>(m), *second = data_of<P>(v);
  const G* g = data_of<G>(gradients);
  const int64_t count = parameters.num_elems();
  const Numbers<P> numbers(step);
  if (aligned_for<P>(p, N) && aligned_for<P>(first, N) && aligned_for<P>(second, N) && aligned_for<G>(g, N) &&
      aligned_for<R>(rounded, N)) {
    adamw_kernel<P, G, R, N><<<blocks_for(count, kThreads * N), kThreads, 0, context.stream>>>(p, g, first, second,
                                                                                               rounded, count, numbers);
  } else {
    adamw_kernel<P, G, R, 1>
        <<<blocks_for(count, kThreads), kThreads, 0, context.stream>>>(p, g, first, second, rounded, count, numbers);
  }
  check_launch("adamw_kernel");
}

}  // namespace

void adamw(const Context& context, View parameters, View gradients, View m, View v, const AdamWStep& step,
           View rounded) {
  const int64_t count = parameters.num_elems();
  TESSERA_ASSERT(gradients.num_elems() == count && m.num_elems() == count && v.num_elems() == count);
  TESSERA_ASSERT(!rounded || rounded.num_elems() == count);
  if (count == 0) return;
  if (parameters.dtype == DType::f64) {
    if (!rounded || rounded.dtype == DType::f64) {
      return launch<double, double, double>(context, parameters, gradients, m, v, step, data_of<double>(rounded));
    }
    return launch<double, double, float>(context, parameters, gradients, m, v, step, data_of<float>(rounded));
  }
  const auto with_gradients = [&](auto zero_rounded) {
    using R = decltype(zero_rounded);
    const auto launch_with = [&](auto zero) {
      launch<float, decltype(zero), R>(context, parameters, gradients, m, v, step, data_of<R>(rounded));
    };
    if (gradients.dtype == DType::f16) return launch_with(Half{});
    if (gradients.dtype == DType::bf16) return launch_with(Bf16{});
    launch_with(float{});
  };
  if (rounded && rounded.dtype == DType::f16) return with_gradients(Half{});
  if (rounded && rounded.dtype == DType::bf16) return with_gradients(Bf16{});
  with_gradients(float{});
}

}  // namespace tessera::cuda
