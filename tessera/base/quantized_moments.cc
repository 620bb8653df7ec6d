#include "tessera/base/quantized_moments.h"

#include <algorithm>

namespace tessera {

namespace {

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

}  // namespace

void quantize(const float* values, int64_t count, DType dtype, std::byte* blocks) {
  TESSERA_ASSERT(is_moment_block(dtype));
  auto* to = reinterpret_cast<QuantizedBlock*>(blocks);
  dtype == DType::q8_signed ? quantize_blocks<true>(values, count, to) : quantize_blocks<false>(values, count, to);
}

void dequantize(const std::byte* blocks, DType dtype, int64_t first, int64_t count, float* values) {
  TESSERA_ASSERT(is_moment_block(dtype));
  const auto* from = reinterpret_cast<const QuantizedBlock*>(blocks);
  dtype == DType::q8_signed ? dequantize_blocks<true>(from, first, count, values)
                            : dequantize_blocks<false>(from, first, count, values);
}

}  // namespace tessera
