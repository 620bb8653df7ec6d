// Vector code of the room base: conversions of arrays between element types. Each instruction set has the functions of
// one Conversions, and all sets compute the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/dtype.h"

namespace tessera {

struct Conversions {
  const char* instruction_set;  // the level that the functions were compiled for
  // What the functions of the same names do (dtype.h and quantized_moments.h).
  void (*convert)(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count);
  void (*join)(const uint16_t* narrow, const int16_t* rest, DType rest_dtype, float* target, size_t count);
  void (*quantize)(const float* values, int64_t count, DType dtype, std::byte* blocks);
  void (*dequantize)(const std::byte* blocks, DType dtype, int64_t first, int64_t count, float* values);
};

// The functions of the set with this position in built_instruction_sets().
const Conversions& conversions_of(int position);

}  // namespace tessera
