// AdamW in one pass over parameters, moments and gradients. A thread updates its elements in registers.
#include "tessera/ops/adamw_numbers.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/types.cuh"
#include "tessera/ops/stochastic_rounding.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// Parameters in one array of type P.
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

// f32 parameters in two arrays: 16-bit values, and their rests. A rest is the part of the f32 that is lost in the
// 16-bit value (base/dtype.h).
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

// Updates elements [begin, begin + N).
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
void launch(const Context& context, const Parameters& parameters, const Kernels::AdamWArrays& arrays,
            const AdamWStep& step) {
  using P = typename Parameters::Type;
  constexpr int N = kPackOf<P>;
  P *first = data_of<P>(arrays.m), *second = data_of<P>(arrays.v);
  const G* g = data_of<G>(arrays.gradients);
  const int64_t count = arrays.gradients.num_elems();
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

// The arrays of an update with parameters and moments in bf16, which are rounded stochastically
// (stochastic_rounding.h).
template <typename G>
struct NarrowArrays {
  uint16_t* p;
  const G* g;
  uint16_t *m, *v;
  int64_t count, num_decayed;
  uint64_t seed, counter_high;
  int64_t first_elem;

  __device__ Words words(int64_t i) const { return philox_words(seed, rounding_counter(first_elem + i), counter_high); }
  __device__ float shrink(int64_t i, const AdamWNumbers<float>& numbers) const {
    return i < num_decayed ? numbers.shrink : 1.0f;
  }
};

__device__ inline float float_of_bf16(uint32_t bits) {
  return __uint_as_float(bits << 16);
}

template <typename G>
__device__ inline void update_one(const NarrowArrays<G>& all, int64_t i, const AdamWNumbers<float>& numbers) {
  const uint32_t word = all.words(i)[rounding_word_index(all.first_elem + i)];
  float p = float_of_bf16(all.p[i]), m = float_of_bf16(all.m[i]), v = float_of_bf16(all.v[i]);
  const float gradient = to_acc(all.g[i]);
  numbers.template update<1>(&p, &gradient, &m, &v, all.shrink(i, numbers));
  all.p[i] = stochastic_bf16(p, word, Rounded::p);
  all.m[i] = stochastic_bf16(m, word, Rounded::m);
  all.v[i] = stochastic_bf16(v, word, Rounded::v);
}

// Four neighbouring bf16 values.
struct FourNarrow {
  uint32_t low, high;
  __device__ static FourNarrow load(const uint16_t* from) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    return {bits.x, bits.y};
  }
  __device__ void store(uint16_t* to) const { *reinterpret_cast<uint2*>(to) = make_uint2(low, high); }
  __device__ float operator[](int i) const {
    const uint32_t word = i < 2 ? low : high;
    return i % 2 ? __uint_as_float(word & 0xffff0000u) : float_of_bf16(word);
  }
  __device__ static FourNarrow of(const uint16_t (&at)[4]) {
    return {at[0] | static_cast<uint32_t>(at[1]) << 16, at[2] | static_cast<uint32_t>(at[3]) << 16};
  }
};

// Four threads update a group of 64 elements. Each thread updates 4 neighbouring elements in each quarter of the group.
// These 16 elements use all words of 4 random counters (stochastic_rounding.h). If the last group is incomplete,
// its elements are updated one by one.
template <typename G>
__global__ void __launch_bounds__(kThreads) adamw_groups_kernel(NarrowArrays<G> all, AdamWNumbers<float> numbers) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t group = thread / 4 * kRoundingGroup, begin = group + thread % 4 * 4;
  if (group + kRoundingGroup > all.count) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int64_t i = begin + 16 * quarter; i < min(begin + 16 * quarter + 4, all.count); ++i) {
        update_one(all, i, numbers);
      }
    }
    return;
  }
  FourNarrow p[4], m[4], v[4];
  Pack<G, 4> g[4];
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int64_t i = begin + 16 * quarter;
    p[quarter] = FourNarrow::load(all.p + i);
    m[quarter] = FourNarrow::load(all.m + i);
    v[quarter] = FourNarrow::load(all.v + i);
    g[quarter] = load_pack<G, 4>(all.g + i);
  }
  Words words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j] = all.words(begin + j);
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int64_t i = begin + 16 * quarter;
    uint16_t new_p[4], new_m[4], new_v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float parameter = p[quarter][j], first = m[quarter][j], second = v[quarter][j];
      const float gradient = g[quarter][j];
      numbers.template update<1>(&parameter, &gradient, &first, &second, all.shrink(i + j, numbers));
      const uint32_t word = words[j].at[quarter];
      new_p[j] = stochastic_bf16(parameter, word, Rounded::p);
      new_m[j] = stochastic_bf16(first, word, Rounded::m);
      new_v[j] = stochastic_bf16(second, word, Rounded::v);
    }
    FourNarrow::of(new_p).store(all.p + i);
    FourNarrow::of(new_m).store(all.m + i);
    FourNarrow::of(new_v).store(all.v + i);
  }
}

// One element per thread. Used if first_elem is not a multiple of 64, or if an array is not aligned to 4 elements.
template <typename G>
__global__ void __launch_bounds__(kThreads) adamw_elements_kernel(NarrowArrays<G> all, AdamWNumbers<float> numbers) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < all.count) update_one(all, i, numbers);
}

template <typename G>
void launch_narrow(const Context& context, const Kernels::AdamWArrays& arrays, const AdamWStep& step) {
  const auto bits = [](View view) {
    TESSERA_ASSERT(view.dtype == DType::bf16);
    return reinterpret_cast<uint16_t*>(view.data);
  };
  const int64_t count = arrays.gradients.num_elems();
  const NarrowArrays<G> all{bits(arrays.parameters),
                            data_of<G>(arrays.gradients),
                            bits(arrays.m),
                            bits(arrays.v),
                            count,
                            step.num_decayed,
                            step.seed,
                            rounding_counter_high(step.number),
                            step.first_elem};
  const AdamWNumbers<float> numbers(step);
  const auto aligned = [](const void* data) { return aligned_for<Bf16>(data, 4); };
  if (step.first_elem % kRoundingGroup == 0 && aligned(all.p) && aligned(all.m) && aligned(all.v) &&
      aligned_for<G>(all.g, 4)) {
    const int64_t groups = (count + kRoundingGroup - 1) / kRoundingGroup;
    adamw_groups_kernel<G><<<blocks_for(4 * groups, kThreads), kThreads, 0, context.stream>>>(all, numbers);
    check_launch("adamw_groups_kernel");
  } else {
    adamw_elements_kernel<G><<<blocks_for(count, kThreads), kThreads, 0, context.stream>>>(all, numbers);
    check_launch("adamw_elements_kernel");
  }
}

}  // namespace

void CudaKernels::adamw(const AdamWArrays& arrays, const AdamWStep& step) {
  const int64_t count = arrays.parameters.num_elems();
  TESSERA_ASSERT(arrays.gradients.num_elems() == count && arrays.m.num_elems() == count &&
                 arrays.v.num_elems() == count);
  TESSERA_ASSERT(!arrays.rest || arrays.rest.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::all);
  if (count == 0) return;
  if (arrays.parameters.dtype == DType::f64) {
    TESSERA_ASSERT(!arrays.rest);
    return launch<Whole<double>, double>(context_, {data_of<double>(arrays.parameters)}, arrays, step);
  }
  if (arrays.m.dtype == DType::bf16) {
    TESSERA_ASSERT(!arrays.rest);
    if (arrays.gradients.dtype == DType::f16) return launch_narrow<Half>(context_, arrays, step);
    if (arrays.gradients.dtype == DType::bf16) return launch_narrow<Bf16>(context_, arrays, step);
    return launch_narrow<float>(context_, arrays, step);
  }
  const auto launch_with = [&](const auto& all) {
    using Parameters = std::decay_t<decltype(all)>;
    if (arrays.gradients.dtype == DType::f16) return launch<Parameters, Half>(context_, all, arrays, step);
    if (arrays.gradients.dtype == DType::bf16) return launch<Parameters, Bf16>(context_, all, arrays, step);
    launch<Parameters, float>(context_, all, arrays, step);
  };
  if (!arrays.rest) return launch_with(Whole<float>{data_of<float>(arrays.parameters)});
  with_rest_type(arrays.rest.dtype, [&](auto zero) {
    using Rest = decltype(zero);
    launch_with(Split<Rest>{data_of<Narrow<Rest>>(arrays.parameters), data_of<Rest>(arrays.rest)});
  });
}

}  // namespace tessera::cuda
