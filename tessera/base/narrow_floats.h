// Converts eight floats at a time to and from 16-bit elements (f16 or bf16), with or without their rests. A rest is
// what a float loses when it is rounded to 16 bits (dtype.h). Builds for processors with AVX2 and F16C use
// intrinsics. A loop over the scalar functions of dtype.h gives the same bits, but compilers generate several times as
// many vector instructions for such a loop.
#pragma once

#include <cstdint>

#include "tessera/base/dtype.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#define TESSERA_NARROW_FLOATS_AVX2
#endif

namespace tessera {

inline constexpr int64_t kNarrowFloats = 8;

// D: DType::bf16 or DType::f16.
template <DType D>
inline void widen_floats(const uint16_t* from, float* to) {
#ifdef TESSERA_NARROW_FLOATS_AVX2
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (D == DType::f16) {
    _mm256_storeu_ps(to, _mm256_cvtph_ps(bits));
  } else {
    _mm256_storeu_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
  }
#else
  for (int64_t i = 0; i < kNarrowFloats; ++i) to[i] = Element<D>::load(from[i]);
#endif
}

#ifdef TESSERA_NARROW_FLOATS_AVX2
namespace detail {
// Rounds each float to bf16. The upper half of each 32-bit result is the bf16. Callers must ignore the lower half.
inline __m256i rounded_to_upper_half(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan));
}
inline __m128i pack_upper_halves(__m256i words) {
  const __m256i upper = _mm256_srli_epi32(words, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}
// The same as f16_rest_unit() of dtype.h, for eight f16 values that are already converted to float.
inline __m256i f16_rest_units(__m256 f16) {
  const __m256i exponent =
      _mm256_and_si256(_mm256_castps_si256(f16), _mm256_set1_epi32(static_cast<int>(kF32Exponent)));
  const __m256i at_least = _mm256_max_epi32(exponent, _mm256_set1_epi32(static_cast<int>(kLeastF16Exponent)));
  return _mm256_sub_epi32(at_least, _mm256_set1_epi32(26 << 23));
}
}  // namespace detail
#endif

template <DType D>
inline void narrow_floats(const float* from, uint16_t* to) {
#ifdef TESSERA_NARROW_FLOATS_AVX2
  const __m256 values = _mm256_loadu_ps(from);
  __m128i narrow;
  if constexpr (D == DType::f16) {
    narrow = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
  } else {
    narrow = detail::pack_upper_halves(detail::rounded_to_upper_half(values));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
#else
  for (int64_t i = 0; i < kNarrowFloats; ++i) to[i] = Element<D>::store(from[i]);
#endif
}

// Splits floats into 16-bit elements and their rests. R: DType::bf16_rest or DType::f16_rest.
template <DType R>
inline void split_floats(const float* from, uint16_t* narrow, int16_t* rest) {
#ifdef TESSERA_NARROW_FLOATS_AVX2
  const __m256 values = _mm256_loadu_ps(from);
  __m128i upper;
  __m256i left;
  if constexpr (R == DType::f16_rest) {
    upper = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    const __m256 kept = _mm256_cvtph_ps(upper);
    const __m256 inverse =
        _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32(254 << 23), detail::f16_rest_units(kept)));
    const __m256 units = _mm256_mul_ps(_mm256_sub_ps(values, kept), inverse);
    // If an element of `units` is NaN, max returns its second operand. The rest of NaN is therefore -32767, as in
    // dtype.h.
    const __m256 above = _mm256_max_ps(units, _mm256_set1_ps(-32767));
    left = _mm256_cvtps_epi32(_mm256_min_ps(above, _mm256_set1_ps(32767)));
  } else {
    const __m256i words = detail::rounded_to_upper_half(values);
    upper = detail::pack_upper_halves(words);
    left = _mm256_sub_epi32(_mm256_castps_si256(values),
                            _mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(narrow), upper);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest),
                   _mm_packs_epi32(_mm256_castsi256_si128(left), _mm256_extracti128_si256(left, 1)));
#else
  for (int64_t i = 0; i < kNarrowFloats; ++i) {
    narrow[i] = Element<Element<R>::kBeside>::store(from[i]);
    rest[i] = Element<R>::store(from[i]);
  }
#endif
}
template <DType R>
inline void join_floats(const uint16_t* narrow, const int16_t* rest, float* to) {
#ifdef TESSERA_NARROW_FLOATS_AVX2
  const __m128i upper = _mm_loadu_si128(reinterpret_cast<const __m128i*>(narrow));
  const __m256i lower = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rest)));
  if constexpr (R == DType::f16_rest) {
    const __m256 kept = _mm256_cvtph_ps(upper), unit = _mm256_castsi256_ps(detail::f16_rest_units(kept));
    const __m256 negative = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), lower));
    _mm256_storeu_ps(to, _mm256_sub_ps(kept, _mm256_mul_ps(negative, unit)));
  } else {
    const __m256i bits = _mm256_add_epi32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16), lower);
    _mm256_storeu_ps(to, _mm256_castsi256_ps(bits));
  }
#else
  for (int64_t i = 0; i < kNarrowFloats; ++i) to[i] = Element<R>::join(narrow[i], rest[i]);
#endif
}

}  // namespace tessera
