// Compiled once for each instruction set.
#include "tessera/base/conversions.h"

#include <algorithm>

#include "tessera/base/instruction_sets.h"
#include "tessera/base/narrow_floats.h"
#include "tessera/base/quantized_moments.h"

namespace tessera {

namespace {

template <DType S, DType T>
void convert_typed(const void* source, void* target, size_t count) {
  const auto* s = static_cast<const typename Element<S>::Type*>(source);
  auto* t = static_cast<typename Element<T>::Type*>(target);
  size_t i = 0;
  if constexpr (S == DType::f32 && size_of(T) == 2 && !is_rest(T)) {
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) narrow_floats<T>(s + i, t + i);
  } else if constexpr (S == DType::f32 && is_rest(T)) {
    uint16_t narrow[kNarrowFloats];
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) split_floats<T>(s + i, narrow, t + i);
  } else if constexpr (T == DType::f32 && size_of(S) == 2) {
    for (; i + kNarrowFloats <= count; i += kNarrowFloats) widen_floats<S>(s + i, t + i);
  }
  for (; i < count; ++i) {
    if constexpr (is_rest(T)) {
      t[i] = Element<T>::store(static_cast<float>(Element<S>::load(s[i])));
    } else {
      t[i] = Element<T>::store(static_cast<decltype(Element<T>::load(t[i]))>(Element<S>::load(s[i])));
    }
  }
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
    case DType::f16_rest:
      return convert_typed<S, DType::f16_rest>(source, target, count);
    case DType::bf16_rest:
      return convert_typed<S, DType::bf16_rest>(source, target, count);
    default:
      TESSERA_ASSERT(!"convert: the target is not a floating-point type");
  }
}

void convert_array(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count) {
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
      TESSERA_ASSERT(!"convert: the source is not a floating-point type");
  }
}

template <DType R>
void join_typed(const uint16_t* narrow, const int16_t* rest, float* target, size_t count) {
  size_t i = 0;
  for (; i + kNarrowFloats <= count; i += kNarrowFloats) join_floats<R>(narrow + i, rest + i, target + i);
  for (; i < count; ++i) target[i] = Element<R>::join(narrow[i], rest[i]);
}

void join_array(const uint16_t* narrow, const int16_t* rest, DType rest_dtype, float* target, size_t count) {
  TESSERA_ASSERT(is_rest(rest_dtype));
  rest_dtype == DType::f16_rest ? join_typed<DType::f16_rest>(narrow, rest, target, count)
                                : join_typed<DType::bf16_rest>(narrow, rest, target, count);
}

template <bool kSigned>
void quantize_blocks(const float* values, int64_t count, QuantizedBlock* blocks) {
  using Map = MomentMap<kSigned>;
  for (int64_t begin = 0; begin < count; begin += kQuantizedValues, ++blocks) {
    float block[kQuantizedValues] = {};
    std::copy_n(values + begin, std::min(kQuantizedValues, count - begin), block);
    float largest = 0;
    for (const float value : block) largest = std::max(largest, std::abs(value));
    const float inverse = Map::inverse_of(largest);
    for (int64_t i = 0; i < kQuantizedValues; ++i) blocks->codes[i] = Map::code(block[i], inverse);
    blocks->largest = largest;
  }
}

template <bool kSigned>
void dequantize_blocks(const QuantizedBlock* blocks, int64_t first, int64_t count, float* values) {
  static constexpr std::array<float, 256> kNumbers = MomentMap<kSigned>::numbers();
  for (int64_t i = first; i < first + count; ++i) {
    const QuantizedBlock& block = blocks[i / kQuantizedValues];
    *values++ = kNumbers[block.codes[i % kQuantizedValues]] * block.largest;
  }
}

void quantize_array(const float* values, int64_t count, DType dtype, std::byte* blocks) {
  TESSERA_ASSERT(is_moment_block(dtype));
  auto* to = reinterpret_cast<QuantizedBlock*>(blocks);
  dtype == DType::q8_signed ? quantize_blocks<true>(values, count, to) : quantize_blocks<false>(values, count, to);
}

void dequantize_array(const std::byte* blocks, DType dtype, int64_t first, int64_t count, float* values) {
  TESSERA_ASSERT(is_moment_block(dtype));
  const auto* from = reinterpret_cast<const QuantizedBlock*>(blocks);
  dtype == DType::q8_signed ? dequantize_blocks<true>(from, first, count, values)
                            : dequantize_blocks<false>(from, first, count, values);
}

constexpr const char* kInstructionSet =
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
    "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
    "x86-64-v3";
#elif defined(__SSE4_2__)
    "x86-64-v2";
#elif defined(__x86_64__)
    "x86-64";
#else
    "baseline";
#endif

constexpr Conversions kConversions{kInstructionSet, convert_array, join_array, quantize_array, dequantize_array};

}  // namespace
}  // namespace tessera

extern "C" const tessera::Conversions* TESSERA_OF_INSTRUCTION_SET(tessera_conversions)();
extern "C" const tessera::Conversions* TESSERA_OF_INSTRUCTION_SET(tessera_conversions)() {
  return &tessera::kConversions;
}
