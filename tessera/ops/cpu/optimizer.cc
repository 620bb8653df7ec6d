// AdamW on flat arrays.
#include <algorithm>
#include <cmath>

#include "tessera/base/math.h"
#include "tessera/base/narrow_floats.h"
#include "tessera/base/quantized_moments.h"
#include "tessera/ops/adamw_numbers.h"
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/mask.h"
#include "tessera/ops/stochastic_rounding.h"

namespace tessera::cpu {

namespace {

// Threads take ranges on demand, and each thread takes several ranges. With one range per thread, all threads would
// wait for a thread that shares its core with other work. Ranges, except the last, have a multiple of kRangeUnit
// elements. Short ranges would be slow, because the hardware prefetches only within a page.
constexpr int64_t kRangesPerThread = 8, kRangeUnit = 4096;

// kBlock: elements that are prefetched, updated and stored together. kAhead: the prefetch distance, in elements. The
// hardware alone does not prefetch this many arrays well, especially at equal offsets within their pages.
constexpr int64_t kBlock = 32, kAhead = 256;

template <DType D>
using ElementOf = typename Element<D>::Type;

template <typename T, DType D>
void widen_block(const ElementOf<D>* from, T* to) {
  if constexpr (dtype_of<T>() == DType::f32 && size_of(D) == 2) {
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) widen_floats<D>(from + i, to + i);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) to[i] = static_cast<T>(Element<D>::load(from[i]));
  }
}

// G: the type of the gradients. R: the type of the parameters. Exception: if each parameter is stored as a 16-bit value
// and a rest (base/dtype.h), R is the type of the rest. If R is bf16, the moments are bf16 too.
template <typename T, AdamWWrites kWrites, DType G, DType R>
struct Arrays {
  static constexpr bool kNarrow = R == DType::bf16;
  using Parameter = std::conditional_t<is_rest(R) || kNarrow, uint16_t, T>;
  using Moment = std::conditional_t<kNarrow, uint16_t, T>;
  static constexpr bool kParameters = kWrites != AdamWWrites::moments, kMoments = kWrites != AdamWWrites::parameters;
  static constexpr bool kRest = kParameters && is_rest(R);

  Parameter* p;
  int16_t* rest;
  const ElementOf<G>* g;
  Moment *m, *v;

  Arrays from(int64_t i) const {
    return {kParameters ? p + i : nullptr, kRest ? rest + i : nullptr, g + i, m + i, v + i};
  }
  void fetch_ahead() const {
    if constexpr (kParameters) fetch(p, true);
    if constexpr (kRest) fetch(rest, true);
    for (const Moment* array : {m, v}) fetch(array, kMoments);
    fetch(g, false);
  }

 private:
  // Prefetches the block kAhead elements after `data`. That block may be beyond the array: a prefetch never faults.
  template <typename E>
  static void fetch(const E* data, bool to_write) {
    const auto block = reinterpret_cast<uintptr_t>(data) + kAhead * sizeof(E);
    for (uintptr_t line = block; line < block + kBlock * sizeof(E); line += 64) {
      const auto* at = reinterpret_cast<const void*>(line);
      if (to_write) {
        __builtin_prefetch(at, 1);
      } else {
        __builtin_prefetch(at, 0);
      }
    }
  }
};

// Updates a block of all arrays. Widens gradients, and joins and splits parameters, in the same pass: a separate pass
// would move the arrays through memory again.
template <typename T, AdamWWrites kWrites, DType G, DType R>
void update_block(const Arrays<T, kWrites, G, R>& at, const AdamWNumbers<T>& numbers, T shrink) {
  alignas(64) T widened[kBlock];
  const T* g;
  if constexpr (G == dtype_of<T>()) {
    g = at.g;
  } else {
    widen_block<T, G>(at.g, widened);
    g = widened;
  }
  if constexpr (Arrays<T, kWrites, G, R>::kRest) {
    alignas(64) T joined[kBlock];
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) join_floats<R>(at.p + i, at.rest + i, joined + i);
    numbers.template update<kBlock, kWrites>(joined, g, at.m, at.v, shrink);
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) split_floats<R>(joined + i, at.p + i, at.rest + i);
  } else {
    numbers.template update<kBlock, kWrites>(at.p, g, at.m, at.v, shrink);
  }
}

template <Rounded kWhich>
void round_block(const float* from, const uint32_t* words, uint16_t* to) {
#pragma omp simd
  for (int64_t i = 0; i < kBlock; ++i) to[i] = stochastic_bf16(from[i], words[i], kWhich);
}

// Updates a block of all arrays, for bf16 parameters and moments. `words` has one random word for each element.
template <AdamWWrites kWrites, DType G>
void update_block(const Arrays<float, kWrites, G, DType::bf16>& at, const AdamWNumbers<float>& numbers, float shrink,
                  const uint32_t* words) {
  using All = Arrays<float, kWrites, G, DType::bf16>;
  alignas(64) float p[kBlock], g[kBlock], m[kBlock], v[kBlock];
  if constexpr (All::kParameters) widen_block<float, DType::bf16>(at.p, p);
  widen_block<float, G>(at.g, g);
  widen_block<float, DType::bf16>(at.m, m);
  widen_block<float, DType::bf16>(at.v, v);
  numbers.template update<kBlock, kWrites>(p, g, m, v, shrink);
  if constexpr (All::kParameters) round_block<Rounded::p>(p, words, at.p);
  if constexpr (All::kMoments) {
    round_block<Rounded::m>(m, words, at.m);
    round_block<Rounded::v>(v, words, at.v);
  }
}

// The inputs of the random words. first_elem: the element of the model at which the arrays begin.
struct Rounding {
  uint64_t seed, counter_high;
  int64_t first_elem;
  Rounding from(int64_t i) const { return {seed, counter_high, first_elem + i}; }
};

// Processes the elements group by group. A group is kRoundingGroup elements (stochastic_rounding.h).
template <AdamWWrites kWrites, DType G>
void update(const Arrays<float, kWrites, G, DType::bf16>& arrays, int64_t count, const AdamWNumbers<float>& numbers,
            float shrink, const Rounding& rounding) {
  using All = Arrays<float, kWrites, G, DType::bf16>;
  constexpr int64_t kGroup = kRoundingGroup;
  for (int64_t i = 0; i < count;) {
    const int64_t elem = rounding.first_elem + i, skipped = elem % kGroup, n = std::min(kGroup - skipped, count - i);
    uint32_t words[kGroup];
    philox16(rounding.seed, rounding_counter(elem - skipped), 1, rounding.counter_high, 0, words);
    const All at = arrays.from(i);
    i += n;
    if (n == kGroup) {
      for (int64_t begin = 0; begin < kGroup; begin += kBlock) {
        at.from(begin).fetch_ahead();
        update_block(at.from(begin), numbers, shrink, words + begin);
      }
      continue;
    }
    // The arrays contain only a part of this group. Copies this part into a full group that otherwise contains zeros.
    uint16_t p[kGroup] = {}, m[kGroup] = {}, v[kGroup] = {};
    ElementOf<G> g[kGroup] = {};
    if constexpr (All::kParameters) std::copy_n(at.p, n, p + skipped);
    std::copy_n(at.m, n, m + skipped);
    std::copy_n(at.v, n, v + skipped);
    std::copy_n(at.g, n, g + skipped);
    const All group{p, nullptr, g, m, v};
    for (int64_t begin = 0; begin < kGroup; begin += kBlock) {
      update_block(group.from(begin), numbers, shrink, words + begin);
    }
    if constexpr (All::kParameters) std::copy_n(p + skipped, n, at.p);
    std::copy_n(m + skipped, n, at.m);
    std::copy_n(v + skipped, n, at.v);
  }
}

template <typename T, AdamWWrites kWrites, DType G, DType R>
void update(const Arrays<T, kWrites, G, R>& arrays, int64_t count, const AdamWNumbers<T>& numbers, T shrink,
            const Rounding&) {
  using All = Arrays<T, kWrites, G, R>;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    const All at = arrays.from(i);
    at.fetch_ahead();
    update_block(at, numbers, shrink);
  }
  if (i == count) return;
  // Copies the remaining elements into a full block that otherwise contains zeros.
  const All at = arrays.from(i);
  const int64_t n = count - i;
  T m[kBlock] = {}, v[kBlock] = {};
  ElementOf<G> g[kBlock] = {};
  int16_t rest[kBlock] = {};
  typename All::Parameter p[kBlock] = {};
  if constexpr (All::kParameters) std::copy_n(at.p, n, p);
  if constexpr (All::kRest) std::copy_n(at.rest, n, rest);
  std::copy_n(at.m, n, m);
  std::copy_n(at.v, n, v);
  std::copy_n(at.g, n, g);
  update_block(All{p, rest, g, m, v}, numbers, shrink);
  if constexpr (All::kParameters) std::copy_n(p, n, at.p);
  if constexpr (All::kRest) std::copy_n(rest, n, at.rest);
  std::copy_n(m, n, at.m);
  std::copy_n(v, n, at.v);
}

template <bool kSigned>
void dequantize_block(const QuantizedBlock& block, float* values) {
  static constexpr std::array<float, 256> kNumbers = MomentMap<kSigned>::numbers();
#pragma omp simd
  for (int64_t i = 0; i < kQuantizedValues; ++i) values[i] = kNumbers[block.codes[i]] * block.largest;
}

template <bool kSigned>
void quantize_block(const float* values, QuantizedBlock& block) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < kQuantizedValues; ++i) largest = std::max(largest, std::abs(values[i]));
  const float inverse = MomentMap<kSigned>::inverse_of(largest);
#pragma omp simd
  for (int64_t i = 0; i < kQuantizedValues; ++i) block.codes[i] = MomentMap<kSigned>::code(values[i], inverse);
  block.largest = largest;
}

// Updates elements [begin, end), which are complete blocks. The moments are the blocks m and v. The arrays m and v of
// `arrays` are not used. Weight decay applies to the elements before `num_decayed`.
template <AdamWWrites kWrites, DType G, DType R>
void update_quantized(const Arrays<float, kWrites, G, R>& arrays, QuantizedBlock* m, QuantizedBlock* v, int64_t begin,
                      int64_t end, int64_t num_decayed, const AdamWNumbers<float>& numbers) {
  using All = Arrays<float, kWrites, G, R>;
  alignas(64) float first[kQuantizedValues], second[kQuantizedValues];
  for (int64_t i = begin; i < end; i += kQuantizedValues) {
    QuantizedBlock &block_of_m = m[i / kQuantizedValues], &block_of_v = v[i / kQuantizedValues];
    dequantize_block<true>(block_of_m, first);
    dequantize_block<false>(block_of_v, second);
    const auto from = [&](int64_t skipped) {
      const int64_t elem = i + skipped;
      return All{All::kParameters ? arrays.p + elem : nullptr, All::kRest ? arrays.rest + elem : nullptr,
                 arrays.g + elem, first + skipped, second + skipped};
    };
    const int64_t decayed = std::clamp<int64_t>(num_decayed - i, 0, kQuantizedValues);
    update(from(0), decayed, numbers, numbers.shrink, Rounding{});
    update(from(decayed), kQuantizedValues - decayed, numbers, 1.0f, Rounding{});
    if constexpr (All::kMoments) {
      quantize_block<true>(first, block_of_m);
      quantize_block<false>(second, block_of_v);
    }
  }
}

// Calls body with `dtype` as a constant. `dtype` must be bf16, f16 or the type T.
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

void CpuKernels::adamw(const AdamWArrays& arrays, const AdamWStep& step) {
  const int64_t count = arrays.gradients.num_elems();
  const bool quantized = is_moment_block(arrays.m.dtype);
  TESSERA_ASSERT(arrays.m.num_elems() * values_of(arrays.m.dtype) == count);
  TESSERA_ASSERT(arrays.v.num_elems() * values_of(arrays.v.dtype) == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::moments || arrays.parameters.num_elems() == count);
  // Calls update_range(begin, end) for ranges of the elements, in several threads.
  const auto for_ranges = [&](auto&& update_range) {
    const int64_t parts = kRangesPerThread * team_.num_threads();
    const int64_t range = (count / parts / kRangeUnit + 1) * kRangeUnit;
    team_.for_each(ceil_divide(count, range),
                   [&](int64_t, int64_t i) { update_range(i * range, std::min((i + 1) * range, count)); });
  };
  const auto run = [&]<AdamWWrites kWrites, typename T, DType G, DType R>() {
    using All = Arrays<T, kWrites, G, R>;
    using Moment = typename All::Moment;
    const All all{reinterpret_cast<typename All::Parameter*>(arrays.parameters.data),
                  reinterpret_cast<int16_t*>(arrays.rest.data),
                  reinterpret_cast<const ElementOf<G>*>(arrays.gradients.data),
                  quantized ? nullptr : reinterpret_cast<Moment*>(arrays.m.data),
                  quantized ? nullptr : reinterpret_cast<Moment*>(arrays.v.data)};
    const AdamWNumbers<T> numbers(step);
    if constexpr (std::is_same_v<T, float> && R != DType::bf16) {
      if (quantized) {
        auto *m = reinterpret_cast<QuantizedBlock*>(arrays.m.data),
             *v = reinterpret_cast<QuantizedBlock*>(arrays.v.data);
        return for_ranges(
            [&](int64_t begin, int64_t end) { update_quantized(all, m, v, begin, end, step.num_decayed, numbers); });
      }
    }
    const Rounding rounding{step.seed, rounding_counter_high(step.number), step.first_elem};
    for_ranges([&](int64_t begin, int64_t end) {
      const int64_t border = std::clamp(step.num_decayed, begin, end);
      update(all.from(begin), border - begin, numbers, numbers.shrink, rounding.from(begin));
      update(all.from(border), end - border, numbers, T(1), rounding.from(border));
    });
  };
  using Writes = AdamWWrites;
  TESSERA_ASSERT(quantized ? arrays.m.dtype == DType::q8_signed && arrays.v.dtype == DType::q8_unsigned
                           : arrays.m.dtype == arrays.v.dtype);
  if (arrays.m.dtype == DType::bf16) {
    TESSERA_ASSERT(!arrays.rest && (step.writes == Writes::moments || arrays.parameters.dtype == DType::bf16));
    return with_16_bits_or<float>(arrays.gradients.dtype, [&](auto G) {
      constexpr DType P = DType::bf16;
      if (step.writes == Writes::moments) return run.template operator()<Writes::moments, float, G(), P>();
      step.writes == Writes::all ? run.template operator()<Writes::all, float, G(), P>()
                                 : run.template operator()<Writes::parameters, float, G(), P>();
    });
  }
  with_float_type(quantized ? DType::f32 : arrays.m.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_16_bits_or<T>(arrays.gradients.dtype, [&](auto G) {
      constexpr DType P = dtype_of<T>();
      if (step.writes == Writes::moments) return run.template operator()<Writes::moments, T, G(), P>();
      const auto run_with = [&]<DType R>() {
        step.writes == Writes::all ? run.template operator()<Writes::all, T, G(), R>()
                                   : run.template operator()<Writes::parameters, T, G(), R>();
      };
      if constexpr (P == DType::f32) {
        if (arrays.rest) {
          TESSERA_ASSERT(arrays.rest.dtype == rest_of(arrays.parameters.dtype) && arrays.rest.num_elems() == count);
          return arrays.rest.dtype == DType::f16_rest ? run_with.template operator()<DType::f16_rest>()
                                                      : run_with.template operator()<DType::bf16_rest>();
        }
      }
      TESSERA_ASSERT(arrays.parameters.dtype == P && !arrays.rest);
      run_with.template operator()<P>();
    });
  });
}

}  // namespace tessera::cpu
