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

// What lies beside the parameters: a rounded copy, or what they have beyond bf16.
enum class Beside { none, copy, rest };

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

template <typename T, AdamWWrites kWrites, DType G, Beside kBeside, DType R>
struct Arrays {
  using Parameter = std::conditional_t<kBeside == Beside::rest, uint16_t, T>;
  static constexpr bool kParameters = kWrites != AdamWWrites::moments, kMoments = kWrites != AdamWWrites::parameters;

  Parameter* p;
  const ElementOf<G>* g;
  T *m, *v;
  ElementOf<R>* beside;

  Arrays from(int64_t i) const {
    return {kParameters ? p + i : nullptr, g + i, m + i, v + i, kBeside != Beside::none ? beside + i : nullptr};
  }
  void fetch_ahead() const {
    if constexpr (kParameters) fetch(p, true);
    if constexpr (kBeside == Beside::rest) fetch(beside, true);
    for (const T* array : {m, v}) fetch(array, kMoments);
    fetch(g, false);
  }

 private:
  // The block kAhead elements after `data`, which may lie beyond the array: it is asked for and no more.
  template <typename E>
  static void fetch(const E* data, bool to_write) {
    const auto block = reinterpret_cast<uintptr_t>(data) + kAhead * sizeof(E);
    for (uintptr_t line = block; line < block + kBlock * sizeof(E); line += 64) {
      const auto* at = reinterpret_cast<const void*>(line);
      to_write ? __builtin_prefetch(at, 1) : __builtin_prefetch(at, 0);
    }
  }
};

// A block of all arrays. Gradients are widened, and what lies beside the parameters is written, on the way: a pass of
// its own would move them through memory again.
template <typename T, AdamWWrites kWrites, DType G, Beside kBeside, DType R>
void update_block(const Arrays<T, kWrites, G, kBeside, R>& at, const AdamWNumbers<T>& numbers, T shrink, bool streams) {
  alignas(64) T widened[kBlock];
  const T* g;
  if constexpr (G == dtype_of<T>()) {
    g = at.g;
  } else {
    widen_block<T, G>(at.g, widened);
    g = widened;
  }
  if constexpr (kBeside == Beside::rest) {
    alignas(64) T joined[kBlock];
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) join_floats(at.p + i, at.beside + i, joined + i);
    numbers.template update<kBlock, kWrites>(joined, g, at.m, at.v, shrink);
    for (int64_t i = 0; i < kBlock; i += kNarrowFloats) split_floats(joined + i, at.p + i, at.beside + i);
  } else {
    numbers.template update<kBlock, kWrites>(at.p, g, at.m, at.v, shrink);
  }
  if constexpr (kBeside == Beside::copy) {
    if (streams) {
      alignas(64) ElementOf<R> rounded[kBlock];
      narrow_block<T, R>(at.p, rounded);
      stream_block(rounded, at.beside);
    } else {
      narrow_block<T, R>(at.p, at.beside);
    }
  }
}

template <typename T, AdamWWrites kWrites, DType G, Beside kBeside, DType R>
void update(const Arrays<T, kWrites, G, kBeside, R>& arrays, int64_t count, const AdamWNumbers<T>& numbers, T shrink,
            bool streams) {
  using All = Arrays<T, kWrites, G, kBeside, R>;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    const All at = arrays.from(i);
    at.fetch_ahead();
    update_block(at, numbers, shrink, streams);
  }
  if (i == count) return;
  // The rest as a block of its own.
  const All at = arrays.from(i);
  const int64_t n = count - i;
  T m[kBlock] = {}, v[kBlock] = {};
  ElementOf<G> g[kBlock] = {};
  ElementOf<R> beside[kBlock] = {};
  typename All::Parameter p[kBlock] = {};
  if constexpr (All::kParameters) std::copy_n(at.p, n, p);
  if constexpr (kBeside == Beside::rest) std::copy_n(at.beside, n, beside);
  std::copy_n(at.m, n, m);
  std::copy_n(at.v, n, v);
  std::copy_n(at.g, n, g);
  update_block(All{p, g, m, v, beside}, numbers, shrink, false);
  if constexpr (All::kParameters) std::copy_n(p, n, at.p);
  if constexpr (kBeside != Beside::none) std::copy_n(beside, n, at.beside);
  std::copy_n(m, n, at.m);
  std::copy_n(v, n, at.v);
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

void adamw(Team& team, View parameters, View gradients, View m, View v, const AdamWStep& step, View beside) {
  const int64_t count = gradients.num_elems();
  TESSERA_ASSERT(m.num_elems() == count && v.num_elems() == count);
  TESSERA_ASSERT(step.writes == AdamWWrites::moments || parameters.num_elems() == count);
  const auto run = [&]<AdamWWrites kWrites, Beside kBeside, typename T, DType G, DType R>() {
    using All = Arrays<T, kWrites, G, kBeside, R>;
    const All all{reinterpret_cast<typename All::Parameter*>(parameters.data),
                  reinterpret_cast<const ElementOf<G>*>(gradients.data), m.as<T>(), v.as<T>(),
                  reinterpret_cast<ElementOf<R>*>(beside.data)};
    const bool is_large = kBeside == Beside::copy && beside.bytes() > kStreamedBytes;
    const AdamWNumbers<T> numbers(step);
    const int64_t parts = kRangesPerThread * team.num_threads();
    const int64_t range = (count / parts / kRangeUnit + 1) * kRangeUnit;
    team.for_each((count + range - 1) / range, [&](int64_t, int64_t i) {
      const int64_t begin = i * range, end = std::min(begin + range, count);
      const auto part = [&](int64_t from, int64_t to, T shrink) {
        const All own = all.from(from);
        const bool streams = is_large && reinterpret_cast<uintptr_t>(own.beside) % 16 == 0;
        update(own, to - from, numbers, shrink, streams);
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
      if (step.writes == Writes::moments) return run.template operator()<Writes::moments, Beside::none, T, G(), G()>();
      const auto run_with = [&]<Beside kBeside, DType R>() {
        step.writes == Writes::all ? run.template operator()<Writes::all, kBeside, T, G(), R>()
                                   : run.template operator()<Writes::parameters, kBeside, T, G(), R>();
      };
      if constexpr (dtype_of<T>() == DType::f32) {
        if (beside && beside.dtype == DType::bf16_rest) {
          TESSERA_ASSERT(parameters.dtype == DType::bf16 && beside.num_elems() == count);
          return run_with.template operator()<Beside::rest, DType::bf16_rest>();
        }
      }
      TESSERA_ASSERT(parameters.dtype == dtype_of<T>());
      if (!beside) return run_with.template operator()<Beside::none, G()>();
      with_16_bits_or<T>(beside.dtype, [&](auto R) { run_with.template operator()<Beside::copy, R()>(); });
    });
  });
}

}  // namespace tessera::cpu
