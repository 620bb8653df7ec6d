#include "tessera/base/quantized_moments.h"

#include "tessera/base/conversions.h"
#include "tessera/base/instruction_sets.h"

namespace tessera {

void quantize(const float* values, int64_t count, DType dtype, std::byte* blocks) {
  conversions_of(chosen_instruction_set()).quantize(values, count, dtype, blocks);
}

void dequantize(const std::byte* blocks, DType dtype, int64_t first, int64_t count, float* values) {
  conversions_of(chosen_instruction_set()).dequantize(blocks, dtype, first, count, values);
}

}  // namespace tessera
