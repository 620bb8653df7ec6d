#include "tessera/base/dtype.h"

namespace tessera {

// Both ways without branches, so that loops over them become vector code: every case is computed and one is taken.

namespace {

// condition ? a : b, in a form that the compiler does not turn into a branch.
uint32_t chosen(bool condition, uint32_t a, uint32_t b) {
  return b ^ ((a ^ b) & (0u - static_cast<uint32_t>(condition)));
}

}  // namespace

float f16_to_f32(uint16_t bits) {
  constexpr uint32_t kRebias = 112u << 23;  // from an exponent with bias 15 to one with 127
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + kRebias;
  // Zero or subnormal, mantissa · 2^-24: as the mantissa of 2^-14, which is then taken away.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f);
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  const uint32_t infinite = (normal + kRebias) | quiet;
  const uint32_t finite = chosen(magnitude < 0x400u, subnormal, normal);
  return std::bit_cast<float>(sign | chosen(magnitude < 0x7c00u, finite, infinite));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Subnormal half: adding 0.5 rounds, and leaves the rounded bits at the end.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const uint32_t infinite = chosen(magnitude > 0x7f800000u, nan, 0x7c00u);
  const uint32_t finite = chosen(magnitude < 0x38800000u, subnormal, normal);
  return static_cast<uint16_t>(sign | chosen(magnitude < 0x477ff000u, finite, infinite));  // that rounds to 2^16
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
