// Eight floats to and from 16 bits at a time, by the processor's vector instructions where it has them: the same bits
// as dtype.h's functions give one by one, which compilers turn into vector code of several times as many instructions.
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

template <DType D>
inline void narrow_floats(const float* from, uint16_t* to) {
#ifdef TESSERA_NARROW_FLOATS_AVX2
  const __m256 values = _mm256_loadu_ps(from);
  __m128i narrow;
  if constexpr (D == DType::f16) {
    narrow = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
  } else {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), is_nan);
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
    narrow = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
#else
  for (int64_t i = 0; i < kNarrowFloats; ++i) to[i] = Element<D>::store(from[i]);
#endif
}

}  // namespace tessera
