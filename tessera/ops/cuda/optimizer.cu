// AdamW in one pass over parameters, moments and gradients. A thread updates its elements in registers.
#include <algorithm>
#include <limits>

#include "tessera/base/quantized_moments.h"
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

// What a thread looks up to quantize and dequantize moments (quantized_moments.h). For magnitudes in [2^n, 2^(n+1)),
// whose bits begin with `exponent`, starts[exponent] has the part of 2^n, and the begin of the next part if it is below
// 2^(n+1). Two parts never begin in one such range.
template <bool kSigned>
struct Lookup {
  using Map = MomentMap<kSigned>;
  struct alignas(8) Start {
    float next;
    int part;
  };
  struct alignas(16) Aligned : Map::Part {};

  std::array<float, 256> numbers;
  std::array<Start, 256> starts;
  std::array<Aligned, Map::kParts> parts;

  static constexpr Lookup make() {
    constexpr float kNever = std::numeric_limits<float>::infinity();
    Lookup all{Map::numbers(), {}, {}};
    for (int i = 0; i < Map::kParts; ++i) all.parts[i] = {Map::part(i)};
    for (uint32_t exponent = 0; exponent < 256; ++exponent) {
      const float low = exponent < 255 ? std::bit_cast<float>(exponent << 23) : 2, end = exponent == 0 ? 0 : 2 * low;
      int part = 0;
      while (part + 1 < Map::kParts && Map::part(part + 1).begin <= low) ++part;
      const float next = part + 1 < Map::kParts ? Map::part(part + 1).begin : kNever;
      all.starts[exponent] = {next < end ? next : kNever, part};
    }
    return all;
  }
  __device__ uint8_t code(float value, float inverse) const {
    const float magnitude = fabsf(value) * inverse;
    const Start start = starts[__float_as_uint(magnitude) >> 23];
    return Map::code_of_level(value, Map::level_in(magnitude, parts[start.part + (magnitude >= start.next)]));
  }
};
struct Lookups {
  Lookup<true> m;
  Lookup<false> v;
};
__device__ const Lookups kLookups{Lookup<true>::make(), Lookup<false>::make()};

constexpr int kWarps = kThreads / 32;
constexpr int kOfLane = kQuantizedValues / 32;  // values of a block that one lane updates

// Codes of N neighbouring values. N is 4 or 1.
template <int N>
__device__ inline void load_codes(const uint8_t* from, uint8_t (&codes)[N]) {
  if constexpr (N == 1) {
    codes[0] = *from;
  } else {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(from);
#pragma unroll
    for (int j = 0; j < N; ++j) codes[j] = static_cast<uint8_t>(word >> (8 * j));
  }
}
template <int N>
__device__ inline void store_codes(uint8_t* to, const uint8_t (&codes)[N]) {
  if constexpr (N == 1) {
    *to = codes[0];
  } else {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) word |= static_cast<uint32_t>(codes[j]) << (8 * j);
    *reinterpret_cast<uint32_t*>(to) = word;
  }
}

__device__ inline float largest_of_warp(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// A warp updates a block of quantized moments in registers. Each lane updates packs of N neighbouring values. A warp
// updates `turns` blocks, because the thread block first copies what it looks up to shared memory.
template <typename Parameters, typename G, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_quantized_kernel(Parameters parameters, const G* __restrict__ gradients, QuantizedBlock* __restrict__ m,
                           QuantizedBlock* __restrict__ v, int64_t num_blocks, int64_t num_decayed, int turns,
                           AdamWNumbers<float> numbers) {
  constexpr int kPacks = kOfLane / N;
  __shared__ Lookups lookups;
  static_assert(sizeof(Lookups) % sizeof(float4) == 0 && alignof(Lookups) == alignof(float4));
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(Lookups) / sizeof(float4)); i += kThreads) {
    reinterpret_cast<float4*>(&lookups)[i] = reinterpret_cast<const float4*>(&kLookups)[i];
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int turn = 0; turn < turns; ++turn) {
    const int64_t block = (static_cast<int64_t>(blockIdx.x) * turns + turn) * kWarps + warp;
    if (block >= num_blocks) return;
    QuantizedBlock &block_of_m = m[block], &block_of_v = v[block];
    const int64_t begin = block * kQuantizedValues;
    float p[kPacks][N], first[kOfLane], second[kOfLane];
    Pack<G, N> g[kPacks];
    uint8_t codes_of_m[kPacks][N], codes_of_v[kPacks][N];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int i = (32 * k + lane) * N;
      parameters.template load<N>(begin + i, p[k]);
      g[k] = load_pack<G, N>(gradients + begin + i);
      load_codes(block_of_m.codes + i, codes_of_m[k]);
      load_codes(block_of_v.codes + i, codes_of_v[k]);
    }
    float largest_m = block_of_m.largest, largest_v = block_of_v.largest;
    float new_largest_m = 0, new_largest_v = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float &one = first[k * N + j], &two = second[k * N + j];
        one = lookups.m.numbers[codes_of_m[k][j]] * largest_m;
        two = lookups.v.numbers[codes_of_v[k][j]] * largest_v;
        const float gradient = static_cast<float>(g[k][j]);
        const bool decays = begin + (32 * k + lane) * N + j < num_decayed;
        numbers.template update<1>(&p[k][j], &gradient, &one, &two, decays ? numbers.shrink : 1.0f);
        new_largest_m = fmaxf(new_largest_m, fabsf(one));
        new_largest_v = fmaxf(new_largest_v, fabsf(two));
      }
    }
    largest_m = largest_of_warp(new_largest_m);
    largest_v = largest_of_warp(new_largest_v);
    const float inverse_m = MomentMap<true>::inverse_of(largest_m), inverse_v = MomentMap<false>::inverse_of(largest_v);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int i = (32 * k + lane) * N;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        codes_of_m[k][j] = lookups.m.code(first[k * N + j], inverse_m);
        codes_of_v[k][j] = lookups.v.code(second[k * N + j], inverse_v);
      }
      parameters.template store<N>(begin + i, p[k]);
      store_codes(block_of_m.codes + i, codes_of_m[k]);
      store_codes(block_of_v.codes + i, codes_of_v[k]);
    }
    if (lane == 0) {
      block_of_m.largest = largest_m;
      block_of_v.largest = largest_v;
    }
  }
}

template <typename Parameters, typename G>
void launch_quantized(const Context& context, const Parameters& parameters, const Kernels::AdamWArrays& arrays,
                      const AdamWStep& step) {
  auto *m = reinterpret_cast<QuantizedBlock*>(arrays.m.data), *v = reinterpret_cast<QuantizedBlock*>(arrays.v.data);
  const G* g = data_of<G>(arrays.gradients);
  const int64_t num_blocks = arrays.m.num_elems();
  const AdamWNumbers<float> numbers(step);
  // Several turns if the GPU still gets thousands of thread blocks, which balance its load.
  const auto turns = static_cast<int>(std::clamp<int64_t>(num_blocks / (kWarps * 2048), 1, 8));
  const auto grid = blocks_for(num_blocks, kWarps * turns);
  if (parameters.template aligned<4>() && aligned_for<G>(g, 4)) {
    adamw_quantized_kernel<Parameters, G, 4>
        <<<grid, kThreads, 0, context.stream>>>(parameters, g, m, v, num_blocks, step.num_decayed, turns, numbers);
  } else {
    adamw_quantized_kernel<Parameters, G, 1>
        <<<grid, kThreads, 0, context.stream>>>(parameters, g, m, v, num_blocks, step.num_decayed, turns, numbers);
  }
  check_launch("adamw_quantized_kernel");
}

void update(const Context& context, const Kernels::AdamWArrays& arrays, const AdamWStep& step) {
  const int64_t count = arrays.parameters.num_elems();
  TESSERA_ASSERT(arrays.gradients.num_elems() == count);
  TESSERA_ASSERT(arrays.m.num_elems() * values_of(arrays.m.dtype) == count);
  TESSERA_ASSERT(arrays.v.num_elems() * values_of(arrays.v.dtype) == count);
  TESSERA_ASSERT(!arrays.rest || arrays.rest.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::all);
  if (count == 0) return;
  if (arrays.parameters.dtype == DType::f64) {
    TESSERA_ASSERT(!arrays.rest);
    return launch<Whole<double>, double>(context, {data_of<double>(arrays.parameters)}, arrays, step);
  }
  if (arrays.m.dtype == DType::bf16) {
    TESSERA_ASSERT(!arrays.rest);
    if (arrays.gradients.dtype == DType::f16) return launch_narrow<Half>(context, arrays, step);
    if (arrays.gradients.dtype == DType::bf16) return launch_narrow<Bf16>(context, arrays, step);
    return launch_narrow<float>(context, arrays, step);
  }
  const bool quantized = is_moment_block(arrays.m.dtype);
  TESSERA_ASSERT(!quantized || (arrays.m.dtype == DType::q8_signed && arrays.v.dtype == DType::q8_unsigned));
  const auto launch_with = [&](const auto& all) {
    using Parameters = std::decay_t<decltype(all)>;
    if (quantized) {
      if (arrays.gradients.dtype == DType::f16) return launch_quantized<Parameters, Half>(context, all, arrays, step);
      if (arrays.gradients.dtype == DType::bf16) return launch_quantized<Parameters, Bf16>(context, all, arrays, step);
      return launch_quantized<Parameters, float>(context, all, arrays, step);
    }
    if (arrays.gradients.dtype == DType::f16) return launch<Parameters, Half>(context, all, arrays, step);
    if (arrays.gradients.dtype == DType::bf16) return launch<Parameters, Bf16>(context, all, arrays, step);
    launch<Parameters, float>(context, all, arrays, step);
  };
  if (!arrays.rest) return launch_with(Whole<float>{data_of<float>(arrays.parameters)});
  with_rest_type(arrays.rest.dtype, [&](auto zero) {
    using Rest = decltype(zero);
    launch_with(Split<Rest>{data_of<Narrow<Rest>>(arrays.parameters), data_of<Rest>(arrays.rest)});
  });
}

}  // namespace

void CudaKernels::adamw(const AdamWArrays& arrays, const AdamWStep& step) {
  update(context_, arrays, step);
}

void CudaKernels::adamw_on(Stream& stream, const AdamWArrays& arrays, const AdamWStep& step) {
  Context context = context_;  // its scratch belongs to the compute stream, but AdamW needs none
  context.stream = static_cast<cudaStream_t>(stream.native());
  update(context, arrays, step);
}

}  // namespace tessera::cuda
