// Element types of views and files, and conversions between the floating-point types.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

// f16_rest, bf16_rest: what an f32 loses when it is rounded to f16 or bf16. See f16_rest_of() and bf16_rest_of().
// q8_signed, q8_unsigned: one element is a block of kQuantizedValues values in 8 bits each (quantized_moments.h).
// nf4: one element is a group of 16384 weights in 4 bits (Nf4Group, nf4.h). e4m3: see float8.h.
enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f16_rest,
  bf16_rest,
  i64,
  i32,
  u8,
  q8_signed,
  q8_unsigned,
  nf4,
  e4m3
};

inline constexpr int64_t kQuantizedValues = 256;

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::f16_rest:
    case DType::bf16_rest:
      return 2;
    case DType::u8:
    case DType::e4m3:
      return 1;
    case DType::nf4:
      return 8464;
    case DType::q8_signed:
    case DType::q8_unsigned:
      return kQuantizedValues + 4;  // a code for each value, and one f32
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f16_rest:
      return "f16_rest";
    case DType::bf16_rest:
      return "bf16_rest";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
    case DType::nf4:
      return "nf4";
    case DType::e4m3:
      return "e4m3";
    case DType::q8_signed:
      return "q8_signed";
    case DType::q8_unsigned:
      return "q8_unsigned";
  }
  return "?";
}

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}

namespace detail {
// condition ? a : b, in a form that compilers do not turn into a branch.
inline uint32_t chosen(bool condition, uint32_t a, uint32_t b) {
  return b ^ ((a ^ b) & (0u - static_cast<uint32_t>(condition)));
}
}  // namespace detail

// bfloat16 is the upper half of a float. f32_to_bf16() rounds to nearest, ties to even. NaN stays NaN.
inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
// The bf16_rest of an f32 is an integer: the 32 bits of the f32, minus the 16 bits of its bf16 shifted left by 16.
// f32_of_bf16() joins both: it shifts the bf16 in the same way and adds the rest. The joined f32 is the original, or a
// NaN for a NaN. One exception: if an f32 is halfway between two bf16 and rounds toward zero (ties to even), the rest
// would be 2^15, which does not fit into an int16. bf16_rest_of() then returns 2^15 − 1. In this case, the joined f32
// is one ulp closer to zero than the original, but rounds to the same bf16.
inline int16_t bf16_rest_of(float value) {
  const uint32_t upper = static_cast<uint32_t>(f32_to_bf16(value)) << 16;
  const auto rest = static_cast<int32_t>(std::bit_cast<uint32_t>(value) - upper);
  return static_cast<int16_t>(rest > INT16_MAX ? INT16_MAX : rest < INT16_MIN ? INT16_MIN : rest);
}
inline float f32_of_bf16(uint16_t bf16, int16_t rest) {
  return std::bit_cast<float>((static_cast<uint32_t>(bf16) << 16) + static_cast<uint32_t>(int32_t{rest}));
}
// IEEE 754 half precision. f32_to_f16() rounds to nearest, ties to even. Magnitudes from 65520 on become infinity,
// because they would round to 2^16. A NaN becomes a quiet NaN with the upper bits of its payload, as in the conversion
// instructions of processors. f16_to_f32() and f32_to_f16() have no branches: they compute every case and select one.
// Compilers can therefore vectorize loops that call them.
inline float f16_to_f32(uint16_t bits) {
  constexpr uint32_t kRebias = 112u << 23;  // from an exponent with bias 15 to one with bias 127
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + kRebias;
  // Zero or subnormal: the value is mantissa · 2^-24. The integer `normal` + 2^23, read as the bits of a float, is
  // (1 + mantissa · 2^-10) · 2^-14. Subtracting 2^-14 leaves the value.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f);
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  const uint32_t infinite = (normal + kRebias) | quiet;
  const uint32_t finite = detail::chosen(magnitude < 0x400u, subnormal, normal);
  return std::bit_cast<float>(sign | detail::chosen(magnitude < 0x7c00u, finite, infinite));
}
inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Subnormal f16: adding 0.5 rounds the value to a multiple of 2^-24. The low bits of the sum are then the f16.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t infinite = detail::chosen(magnitude > 0x7f800000u, nan, 0x7c00u);
  const uint32_t finite = detail::chosen(magnitude < 0x38800000u, subnormal, normal);
  return static_cast<uint16_t>(sign | detail::chosen(magnitude < 0x477ff000u, finite, infinite));
}
// The f16_rest of an f32 is the f32 minus its f16, as a number of units. One unit is 2^-16 of the distance from this
// f16 to the f16 with the next greater magnitude. f32_of_f16() joins both: it returns f16 + rest · unit.
// The rest is limited to ±(2^15 − 1) units, because 2^15 units are half of the distance to the next f16. The joined f32
// therefore rounds to the same f16, and splitting it again gives the same f16 and the same rest.
// If the magnitude is at least 2^-17 and the f16 is finite, the joined f32 equals the original. One exception: if the
// original is halfway between two subnormal f16s, the joined f32 may be one ulp of f32 away. Magnitudes below 2^-17 are
// rounded to the nearest multiple of 2^-40. If this multiple is halfway between two f16s, the rest would be ±2^15, and
// the limit applies: the joined f32 is then the next multiple of 2^-40 toward the f16. If the f32 or its f16 is NaN or
// infinite, the rest is −(2^15 − 1) or 2^15 − 1. The joined f32 is then NaN or infinite, too.
namespace detail {
constexpr uint32_t kLeastF16Exponent = 113u << 23, kF32Exponent = 0xffu << 23;
inline uint32_t f16_rest_unit(float f16) {  // the bits of the unit as an f32
  const uint32_t exponent = std::bit_cast<uint32_t>(f16) & kF32Exponent;
  return chosen(exponent > kLeastF16Exponent, exponent, kLeastF16Exponent) - (26u << 23);
}
}  // namespace detail
inline int16_t f16_rest_of(float value) {
  const float upper = f16_to_f32(f32_to_f16(value));
  const float inverse = std::bit_cast<float>((254u << 23) - detail::f16_rest_unit(upper));
  const float rest = (value - upper) * inverse;
  const float above = rest > -32767.0f ? rest : -32767.0f;
  return static_cast<int16_t>(std::nearbyint(above < 32767.0f ? above : 32767.0f));
}
inline float f32_of_f16(uint16_t f16, int16_t rest) {
  const float upper = f16_to_f32(f16);
  // The product is exact. It is subtracted, not added, so that an f16 of -0 with a rest of zero gives -0.
  return upper - static_cast<float>(-int{rest}) * std::bit_cast<float>(detail::f16_rest_unit(upper));
}

// The type of an element in memory, and the conversion to and from its value (float, or double for f64).
template <DType D>
struct Element;
template <>
struct Element<DType::f64> {
  using Type = double;
  static double load(Type x) { return x; }
  static Type store(double x) { return x; }
};
template <>
struct Element<DType::f32> {
  using Type = float;
  static float load(Type x) { return x; }
  static Type store(double x) { return static_cast<float>(x); }
};
template <>
struct Element<DType::bf16> {
  using Type = uint16_t;
  static float load(Type x) { return bf16_to_f32(x); }
  static Type store(float x) { return f32_to_bf16(x); }
};
template <>
struct Element<DType::f16> {
  using Type = uint16_t;
  static float load(Type x) { return f16_to_f32(x); }
  static Type store(float x) { return f32_to_f16(x); }
};
template <>
struct Element<DType::bf16_rest> {  // has join() instead of load(), because a rest alone has no value
  using Type = int16_t;
  static constexpr DType kBeside = DType::bf16;  // the type of the element that the rest belongs to
  static float join(uint16_t bf16, Type rest) { return f32_of_bf16(bf16, rest); }
  static Type store(float x) { return bf16_rest_of(x); }
};
template <>
struct Element<DType::f16_rest> {
  using Type = int16_t;
  static constexpr DType kBeside = DType::f16;
  static float join(uint16_t f16, Type rest) { return f32_of_f16(f16, rest); }
  static Type store(float x) { return f16_rest_of(x); }
};

constexpr bool is_moment_block(DType dtype) {
  return dtype == DType::q8_signed || dtype == DType::q8_unsigned;
}
// How many parameters share one element of an array of moments.
constexpr int64_t values_of(DType dtype) {
  return is_moment_block(dtype) ? kQuantizedValues : 1;
}
// Whether an element stands for many values. Files store such elements as bytes.
constexpr bool is_packed(DType dtype) {
  return is_moment_block(dtype) || dtype == DType::nf4;
}
constexpr bool is_rest(DType dtype) {
  return dtype == DType::f16_rest || dtype == DType::bf16_rest;
}
// The type of the rests that belong to f16 or bf16 elements.
constexpr DType rest_of(DType dtype) {
  TESSERA_ASSERT(dtype == DType::f16 || dtype == DType::bf16);
  return dtype == DType::f16 ? DType::f16_rest : DType::bf16_rest;
}

// Whether convert() supports these types.
constexpr bool converts(DType from, DType to) {
  const auto has_value = [](DType dtype) {
    return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  };
  return has_value(from) && (has_value(to) || is_rest(to));
}

// Converts `count` elements between floating-point types (f64, f32, f16, bf16). If the target type is f16_rest or
// bf16_rest, stores only the rests of the values. Source and target must not overlap.
void convert(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count);
// Joins `count` 16-bit elements and their rests, of type `rest_dtype`, to f32.
void join(const uint16_t* narrow, const int16_t* rest, DType rest_dtype, float* target, size_t count);

}  // namespace tessera
