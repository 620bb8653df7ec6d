#include "tessera/base/dtype.h"

#include "tessera/base/conversions.h"
#include "tessera/base/instruction_sets.h"

namespace tessera {

void convert(const void* source, DType source_dtype, void* target, DType target_dtype, size_t count) {
  conversions_of(chosen_instruction_set()).convert(source, source_dtype, target, target_dtype, count);
}

void join(const uint16_t* narrow, const int16_t* rest, DType rest_dtype, float* target, size_t count) {
  conversions_of(chosen_instruction_set()).join(narrow, rest, rest_dtype, target, count);
}

}  // namespace tessera
