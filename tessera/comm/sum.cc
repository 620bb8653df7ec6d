#include "tessera/comm/sum.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kBlock = 1024;  // elements summed at a time; they fit into the L1 cache

// Works block by block. `out` may be one of the inputs, because a block of `out` is written only after the same block
// of all inputs has been read.
template <typename T>
void sum_of(const std::vector<const std::byte*>& inputs, std::byte* out, int64_t num_elems) {
  T sum[kBlock];
  for (int64_t begin = 0; begin < num_elems; begin += kBlock) {
    const int64_t count = std::min(kBlock, num_elems - begin);
    std::memcpy(sum, reinterpret_cast<const T*>(inputs[0]) + begin, static_cast<size_t>(count) * sizeof(T));
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* input = reinterpret_cast<const T*>(inputs[r]) + begin;
      for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + input[i]);
    }
    std::memcpy(reinterpret_cast<T*>(out) + begin, sum, static_cast<size_t>(count) * sizeof(T));
  }
}

void sum_of_16_bit(const std::vector<const std::byte*>& inputs, std::byte* out, int64_t num_elems, DType dtype) {
  float sum[kBlock], input[kBlock];
  for (int64_t begin = 0; begin < num_elems; begin += kBlock) {
    const int64_t count = std::min(kBlock, num_elems - begin);
    convert(inputs[0] + 2 * begin, dtype, sum, DType::f32, static_cast<size_t>(count));
    for (size_t r = 1; r < inputs.size(); ++r) {
      convert(inputs[r] + 2 * begin, dtype, input, DType::f32, static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sum[i] += input[i];
    }
    convert(sum, DType::f32, out + 2 * begin, dtype, static_cast<size_t>(count));
  }
}

}  // namespace

void sum_in_order(const std::vector<const std::byte*>& inputs, std::byte* out, int64_t num_elems, DType dtype) {
  TESSERA_ASSERT(!inputs.empty());
  switch (dtype) {
    case DType::f64:
      return sum_of<double>(inputs, out, num_elems);
    case DType::f32:
      return sum_of<float>(inputs, out, num_elems);
    case DType::f16_rest:
    case DType::bf16_rest:
    case DType::q8_signed:
    case DType::q8_unsigned:
    case DType::nf4:
    case DType::e4m3:
      TESSERA_ASSERT(!"the elements of this type cannot be summed");
    case DType::f16:
    case DType::bf16:
      return sum_of_16_bit(inputs, out, num_elems, dtype);
    case DType::i64:
      return sum_of<uint64_t>(inputs, out, num_elems);
    case DType::i32:
      return sum_of<uint32_t>(inputs, out, num_elems);
    case DType::u8:
      return sum_of<uint8_t>(inputs, out, num_elems);
  }
}

}  // namespace tessera
