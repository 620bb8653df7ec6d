// AdamW in one pass over parameters, moments and gradients. All state is in registers.
#include "tessera/ops/adamw_numbers.h"
#include "tessera/ops/cuda/arrays.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// Parameters stored as type P.
template <typename P>
struct Whole {
  using Type = P;
  P* parameters;

  template <int N>
  bool aligned() const {
    return aligned_for<P>(parameters, N);
  }
  template <int N>
  __device__ void load(int64_t i, P (&p)[N]) const {
    const auto pack = load_pack<P, N>(parameters + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = pack.at[j];
  }
  template <int N>
  __device__ void store(int64_t i, const P (&p)[N]) const {
    store_pack(parameters + i, Pack<P, N>::of(p));
  }
};

// f32 parameters stored as 16-bit values and their rests.
template <typename Rest>
struct Split {
  using Type = float;
  Narrow<Rest>* parameters;
  Rest* rest;

  template <int N>
  struct alignas(2 * N) Rests {
    Rest at[N];
  };

  template <int N>
  bool aligned() const {
    return aligned_for<Narrow<Rest>>(parameters, N) && aligned_for<Rest>(rest, N);
  }
  template <int N>
  __device__ void load(int64_t i, float (&p)[N]) const {
    const auto upper = load_pack<Narrow<Rest>, N>(parameters + i);
    const auto lower = *reinterpret_cast<const Rests<N>*>(rest + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = joined(upper[j], lower.at[j]);
  }
  template <int N>
  __device__ void store(int64_t i, const float (&p)[N]) const {
    const auto upper = Pack<Narrow<Rest>, N>::of(p);
    store_pack(parameters + i, upper);
    Rests<N> lower;
#pragma unroll
    for (int j = 0; j < N; ++j) lower.at[j] = rest_of<Rest>(p[j], upper[j]);
    *reinterpret_cast<Rests<N>*>(rest + i) = lower;
  }
};

template <typename Parameters, typename G, int N>
__device__ inline void update(const Parameters& parameters, const G* __restrict__ gradients,
                              typename Parameters::Type* __restrict__ m, typename Parameters::Type* __restrict__ v,
                              int64_t begin, int64_t num_decayed,
                              const AdamWNumbers<typename Parameters::Type>& numbers) {
  using P = typename Parameters::Type;
  P p[N];
  parameters.template load<N>(begin, p);
  auto first = load_pack<P, N>(m + begin);
  auto second = load_pack<P, N>(v + begin);
  const auto g = load_pack<G, N>(gradients + begin);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const P gradient = static_cast<P>(g[j]);
    numbers.template update<1>(&p[j], &gradient, &first.at[j], &second.at[j],
                               begin + j < num_decayed ? numbers.shrink : P(1));
  }
  parameters.template store<N>(begin, p);
  store_pack(m + begin, first);
  store_pack(v + begin, second);
}

template <typename Parameters, typename G, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Parameters parameters, const G* __restrict__ gradients, typename Parameters::Type* __restrict__ m,
                 typename Parameters::Type* __restrict__ v, int64_t count, int64_t num_decayed,
                 AdamWNumbers<typename Parameters::Type> numbers) {
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (begin + N <= count) return update<Parameters, G, N>(parameters, gradients, m, v, begin, num_decayed, numbers);
  for (int64_t i = begin; i < count; ++i)
    update<Parameters, G, 1>(parameters, gradients, m, v, i, num_decayed, numbers);
}

template <typename Parameters, typename G>
void launch(const Context& context, const Parameters& parameters, View gradients, View m, View v,
            const AdamWStep& step) {
  using P = typename Parameters::Type;
  constexpr int N = kPackOf<P>;
  P *first = data_of<P>(m), *second = data_of<P>(v);
  const G* g = data_of<G>(gradients);
  const int64_t count = gradients.num_elems();
  const AdamWNumbers<P> numbers(step);
  if (parameters.template aligned<N>() && aligned_for<P>(first, N) && aligned_for<P>(second, N) &&
      aligned_for<G>(g, N)) {
    adamw_kernel<Parameters, G, N><<<blocks_for(count, kThreads * N), kThreads, 0, context.stream>>>(
        parameters, g, first, second, count, step.num_decayed, numbers);
  } else {
    adamw_kernel<Parameters, G, 1><<<blocks_for(count, kThreads), kThreads, 0, context.stream>>>(
        parameters, g, first, second, count, step.num_decayed, numbers);
  }
  check_launch("adamw_kernel");
}

}  // namespace

void adamw(const Context& context, View parameters, View rest, View gradients, View m, View v, const AdamWStep& step) {
  const int64_t count = parameters.num_elems();
  TESSERA_ASSERT(gradients.num_elems() == count && m.num_elems() == count && v.num_elems() == count);
  TESSERA_ASSERT(!rest || rest.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::all);
  if (count == 0) return;
  if (parameters.dtype == DType::f64) {
    TESSERA_ASSERT(!rest);
    return launch<Whole<double>, double>(context, {data_of<double>(parameters)}, gradients, m, v, step);
  }
  const auto launch_with = [&](const auto& all) {
    using Parameters = std::decay_t<decltype(all)>;
    if (gradients.dtype == DType::f16) return launch<Parameters, Half>(context, all, gradients, m, v, step);
    if (gradients.dtype == DType::bf16) return launch<Parameters, Bf16>(context, all, gradients, m, v, step);
    launch<Parameters, float>(context, all, gradients, m, v, step);
  };
  if (!rest) return launch_with(Whole<float>{data_of<float>(parameters)});
  with_rest_type(rest.dtype, [&](auto zero) {
    using Rest = decltype(zero);
    launch_with(Split<Rest>{data_of<Narrow<Rest>>(parameters), data_of<Rest>(rest)});
  });
}

}  // namespace tessera::cuda
