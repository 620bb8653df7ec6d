#include "tessera/base/dtype.h"

namespace tessera {

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {                        // subnormal half: adding 0.5 leaves the rounded bits at the end
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

namespace {

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

template <DType S, DType T>
void convert_typed(const void* source, void* target, size_t count) {
  const auto* s = static_cast<const typename Element<S>::Type*>(source);
  auto* t = static_cast<typename Element<T>::Type*>(target);
  for (size_t i = 0; i < count; ++i) t[i] = Element<T>::store(Element<S>::load(s[i]));
}

template <DType S>
void convert_from(const void* source, void* target, DType target_dtype, size_t count) {
  switch (target_dtype) {
    case DType::f64:
      return convert_typed<S, DType::f64>(source, target, count);
    case DType::f32:
      return convert_typed<S, DType::f32>(source, target, count);
    case DType::f16:
      return convert_typed<S, DType::f16>(source, target, count);
    case DType::bf16:
      return convert_typed<S, DType::bf16>(source, target, count);
    default:
      TESSERA_ASSERT(!"convert: the target is no floating-point type");
  }
}

}  // namespace

void convert(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count) {
  if (source_dtype == target_dtype) {
    std::memcpy(target, source, count * size_of(source_dtype));
    return;
  }
  switch (source_dtype) {
    case DType::f64:
      return convert_from<DType::f64>(source, target, target_dtype, count);
    case DType::f32:
      return convert_from<DType::f32>(source, target, target_dtype, count);
    case DType::f16:
      return convert_from<DType::f16>(source, target, target_dtype, count);
    case DType::bf16:
      return convert_from<DType::bf16>(source, target, target_dtype, count);
    default:
      TESSERA_ASSERT(!"convert: the source is no floating-point type");
  }
}

}  // namespace tessera
