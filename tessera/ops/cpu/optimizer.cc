#include "tessera/ops/cpu/optimizer.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/narrow_floats.h"
#include "tessera/ops/adamw_numbers.h"
#include "tessera/ops/cpu/dispatch.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tessera::cpu {

namespace {

// Ranges are given out on demand, some to each thread: else all would wait for the one that shares its core with
// something else. Longer ones are faster, whose pages the hardware fetches ahead.
constexpr int64_t kRangesPerThread = 8, kRangeUnit = 4096;

// Elements that are fetched, updated and stored together, and how far ahead they are fetched: the arrays are more
// streams than the hardware follows well, above all where they lie at equal places of their pages.
constexpr int64_t kBlock = 32, kAhead = 256;

// A copy of more bytes passes the caches by: nobody would find it there, and a line that is only written would be read
// from memory first.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

template <DType D>
using ElementOf = typename Element<D>::Type;

// The block kAhead elements after `data`, which may lie beyond the array: it is asked for and no more.
template <typename T>
void fetch_ahead(const T* data, bool to_write) {
  const auto block = reinterpret_cast<uintptr_t>(data) + kAhead * sizeof(T);
  for (uintptr_t line = block; line < block + kBlock * sizeof(T); line += 64) {
    const auto* at = reinterpret_cast<const void*>(line);
    to_write ? __builtin_prefetch(at, 1) : __builtin_prefetch(at, 0);
  }
}

template <typename T, DType D>
void widen_block(const ElementOf<D>* from, T* to) {
  if constexpr (dtype_of<T>() == DType::f32 && size_of(D) == 2) {
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) widen_floats<D>(from + i, to + i);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) to[i] = static_cast<T>(Element<D>::load(from[i]));
  }
}

template <typename T, DType D>
void narrow_block(const T* from, ElementOf<D>* to) {
  if constexpr (dtype_of<T>() == DType::f32 && size_of(D) == 2) {
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) narrow_floats<D>(from + i, to + i);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) to[i] = Element<D>::store(from[i]);
  }
}

// `to` lies at a multiple of 16 bytes. Other threads see it after end_streaming().
template <typename T>
void stream_block(const T* from, T* to) {
#ifdef __SSE2__
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  for (size_t i = 0; i < kBlock * sizeof(T) / sizeof *target; ++i) {
    _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
  }
#else
  std::copy_n(from, kBlock, to);
#endif
}
void end_streaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// Gradients of G are widened, and a copy of the parameters is written as R, on the way: a pass of its own would move
// them through memory again.
template <AdamWWrites kWrites, bool kCopies, typename T, DType G, DType R>
void update(T* p, const ElementOf<G>* g, T* m, T* v, ElementOf<R>* copy, int64_t count, const AdamWNumbers<T>& numbers,
            T shrink, bool streams) {
  constexpr bool kParameters = kWrites != AdamWWrites::moments, kMoments = kWrites != AdamWWrites::parameters;
  alignas(64) T widened[kBlock];
  alignas(64) ElementOf<R> rounded[kBlock];
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    if constexpr (kParameters) fetch_ahead(p + i, true);
    for (const T* array : {m, v}) fetch_ahead(array + i, kMoments);
    fetch_ahead(g + i, false);
    T* const own_p = kParameters ? p + i : nullptr;
    if constexpr (G == dtype_of<T>()) {
      numbers.template update<kBlock, kWrites>(own_p, g + i, m + i, v + i, shrink);
    } else {
      widen_block<T, G>(g + i, widened);
      numbers.template update<kBlock, kWrites>(own_p, widened, m + i, v + i, shrink);
    }
    if constexpr (!kCopies) continue;
    if (streams) {
      narrow_block<T, R>(p + i, rounded);
      stream_block(rounded, copy + i);
    } else {
      narrow_block<T, R>(p + i, copy + i);
    }
  }
  if (i == count) return;
  // The rest as a block of its own.
  const int64_t n = count - i;
  T rest_p[kBlock] = {}, rest_m[kBlock] = {}, rest_v[kBlock] = {};
  ElementOf<G> rest_g[kBlock] = {};
  if constexpr (kParameters) std::copy_n(p + i, n, rest_p);
  std::copy_n(m + i, n, rest_m);
  std::copy_n(v + i, n, rest_v);
  std::copy_n(g + i, n, rest_g);
  widen_block<T, G>(rest_g, widened);
  numbers.template update<kBlock, kWrites>(rest_p, widened, rest_m, rest_v, shrink);
  if constexpr (kParameters) std::copy_n(rest_p, n, p + i);
  std::copy_n(rest_m, n, m + i);
  std::copy_n(rest_v, n, v + i);
  if constexpr (!kCopies) return;
  narrow_block<T, R>(rest_p, rounded);
  std::copy_n(rounded, n, copy + i);
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
  const int64_t count = gradients.num_elems();
  TESSERA_ASSERT(m.num_elems() == count && v.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::moments ? !rounded : parameters.num_elems() == count);
  const auto run = [&]<AdamWWrites kWrites, bool kCopies, typename T, DType G, DType R>() {
    auto* const g = reinterpret_cast<const ElementOf<G>*>(gradients.data);
    auto* const copy = reinterpret_cast<ElementOf<R>*>(rounded.data);
    const bool is_large = kCopies && rounded.bytes() > kStreamedBytes;
    const AdamWNumbers<T> numbers(step);
    const int64_t parts = kRangesPerThread * team.num_threads();
    const int64_t range = (count / parts / kRangeUnit + 1) * kRangeUnit;
    team.for_each((count + range - 1) / range, [&](int64_t, int64_t i) {
      const int64_t begin = i * range, end = std::min(begin + range, count);
      const auto part = [&](int64_t from, int64_t to, T shrink) {
        auto* const copy_from = kCopies ? copy + from : nullptr;
        const bool streams = is_large && reinterpret_cast<uintptr_t>(copy_from) % 16 == 0;
        T* const p = kWrites != AdamWWrites::moments ? parameters.as<T>() + from : nullptr;
        update<kWrites, kCopies, T, G, R>(p, g + from, m.as<T>() + from, v.as<T>() + from, copy_from, to - from,
                                          numbers, shrink, streams);
      };
      const int64_t border = std::clamp(step.num_decayed, begin, end);
      part(begin, border, numbers.shrink);
      part(border, end, T(1));
      end_streaming();
    });
  };
  using Writes = AdamWWrites;
  with_float_type(m.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_16_bits_or<T>(gradients.dtype, [&](auto G) {
      const auto run_with = [&]<bool kCopies, DType R>() {
        step.writes == Writes::all ? run.template operator()<Writes::all, kCopies, T, G(), R>()
                                   : run.template operator()<Writes::parameters, kCopies, T, G(), R>();
      };
      if (step.writes == Writes::moments) return run.template operator()<Writes::moments, false, T, G(), G()>();
      if (!rounded) return run_with.template operator()<false, G()>();
      with_16_bits_or<T>(rounded.dtype, [&](auto R) { run_with.template operator()<true, R()>(); });
    });
  });
}

}  // namespace tessera::cpu
