// Numbers in 8 bits for matrix products: e4m3 has 1 sign bit, 4 bits of exponent (bias 7) and 3 bits of mantissa
// (Micikevicius et al. 2022, "FP8 formats for deep learning"). Its largest value is 448, its smallest 2^-9. It has no
// infinity. NaN is 0x7f or 0xff.
//
// The values of a block share a scale. A code stands for its e4m3 number times the scale. There are two kinds of
// scales:
// - `quotient`: the largest magnitude of the block, divided by 448. The largest value of a block matters most in a
//   product, and this scale keeps it exact.
// - `power_of_two`: the smallest power of two for which no value of the block exceeds 448. Large values are then
// rounded
//   in the same way in every block. Products that sum over tokens use this kind: ranks and micro-batches cut the tokens
//   into other blocks, and most values must not change with the cut.
#pragma once

#include <bit>
#include <cstdint>

#include "tessera/base/dtype.h"

namespace tessera {

inline constexpr int64_t kFloat8Block = 128;  // values that share a scale

inline float e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {  // zero or subnormal: a multiple of 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// Rounds to nearest, ties to even. Magnitudes above 448 become 448, infinity too. NaN stays NaN. Has no branches, so
// that compilers can vectorize loops that call it.
inline uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - (120u << 23)) >> 20;
  // Subnormal e4m3: adding 2^14 rounds the value to a multiple of 2^-9. The low bits of the sum are then the number.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - (141u << 23);
  const uint32_t finite = detail::chosen(magnitude < (121u << 23), subnormal, normal);
  const uint32_t limited = detail::chosen(magnitude < 0x43e00000u, finite, 0x7eu);  // 448
  return static_cast<uint8_t>(sign | detail::chosen(magnitude > 0x7f800000u, 0x7fu, limited));
}

enum class Float8ScaleKind { quotient, power_of_two };
struct Float8Scale {
  float scale = 1, inverse = 1;  // a value x is rounded to f32_to_e4m3(x · inverse)
};

// The scale of a block whose largest magnitude is an f32 with the bits `largest`. A block of zeros has the scale 1. A
// block with an infinity or a NaN has the scale NaN, so that a product with it is NaN. Very small blocks always have a
// power of two, because the inverse of a quotient might be infinite.
constexpr Float8Scale float8_scale(uint32_t largest, Float8ScaleKind kind) {
  constexpr uint32_t kMantissaOf448 = 0x600000u, kExponent = 23, kVerySmall = 27u << kExponent;  // 2^-100
  if (largest == 0) return {};
  if (largest >= 0x7f800000u) return {std::bit_cast<float>(0x7fc00000u), std::bit_cast<float>(0x7fc00000u)};
  const auto value = std::bit_cast<float>(largest);
  if (kind == Float8ScaleKind::quotient && largest >= kVerySmall) return {value / 448, 448 / value};
  const int32_t exponent =
      static_cast<int32_t>(largest >> kExponent) - 8 + ((largest & 0x7fffffu) > kMantissaOf448 ? 1 : 0);
  const uint32_t bits = static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << kExponent;
  return {std::bit_cast<float>(bits), std::bit_cast<float>((254u << kExponent) - bits)};
}

}  // namespace tessera
