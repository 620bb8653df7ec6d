// AdamW: one pass over parameters, moments and gradients, all state in registers.
#include "tessera/ops/adamw_numbers.h"
#include "tessera/ops/cuda/arrays.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// R: the type of the rounded copy; `rounded` may be null.
template <typename P, typename G, typename R, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(P* __restrict__ parameters, const G* __restrict__ gradients, P* __restrict__ m, P* __restrict__ v,
                 R* __restrict__ rounded, int64_t count, int64_t num_decayed, AdamWNumbers<P> numbers) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (begin + N <= count) {
    auto p = load_pack<P, N>(parameters + begin);
    auto first = load_pack<P, N>(m + begin);
    auto second = load_pack<P, N>(v + begin);
    const auto g = load_pack<G, N>(gradients + begin);
    Acc<R> copy[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const P gradient = static_cast<P>(g[j]);
      numbers.template update<1>(&p.at[j], &gradient, &first.at[j], &second.at[j],
                                 begin + j < num_decayed ? numbers.shrink : P(1));
      copy[j] = static_cast<Acc<R>>(p.at[j]);
    }
    store_pack(parameters + begin, p);
    store_pack(m + begin, first);
    store_pack(v + begin, second);
    if (rounded) store_pack(rounded + begin, Pack<R, N>::of(copy));
    return;
  }
  for (int64_t i = begin; i < count; ++i) {
    const P gradient = static_cast<P>(to_acc(gradients[i]));
    numbers.template update<1>(parameters + i, &gradient, m + i, v + i, i < num_decayed ? numbers.shrink : P(1));
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
  const AdamWNumbers<P> numbers(step);
  if (aligned_for<P>(p, N) && aligned_for<P>(first, N) && aligned_for<P>(second, N) && aligned_for<G>(g, N) &&
      aligned_for<R>(rounded, N)) {
    adamw_kernel<P, G, R, N><<<blocks_for(count, kThreads * N), kThreads, 0, context.stream>>>(
        p, g, first, second, rounded, count, step.num_decayed, numbers);
  } else {
    adamw_kernel<P, G, R, 1><<<blocks_for(count, kThreads), kThreads, 0, context.stream>>>(
        p, g, first, second, rounded, count, step.num_decayed, numbers);
  }
  check_launch("adamw_kernel");
}

}  // namespace

void adamw(const Context& context, View parameters, View gradients, View m, View v, const AdamWStep& step,
           View rounded) {
  const int64_t count = parameters.num_elems();
  TESSERA_ASSERT(gradients.num_elems() == count && m.num_elems() == count && v.num_elems() == count);
  TESSERA_ASSERT(!rounded || rounded.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::all);
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
