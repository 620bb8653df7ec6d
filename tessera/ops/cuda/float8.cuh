// Rounding to 8-bit floating-point numbers (base/float8.h) in kernels.
#pragma once

#include <cuda_fp8.h>

#include "tessera/ops/cuda/types.cuh"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

// A part of a Float8Matrix: `values` and `scales` begin at the part. Their rows are `pitch` and `scale_pitch` elements
// apart.
struct Float8Target {
  uint8_t* values = nullptr;  // null: not wanted
  float* scales = nullptr;
  int64_t pitch = 0, scale_pitch = 0;
  bool squares = false;
};

// The target for a whole matrix [rows, columns], which may be empty.
inline Float8Target target_of(const Float8Matrix& matrix, int64_t rows, int64_t columns) {
  if (!matrix) return {};
  TESSERA_ASSERT(matrix.values.dtype == DType::e4m3 && matrix.values.shape == (Shape{rows, columns}) &&
                 matrix.scales.shape == float8_scales(rows, columns, matrix.squares));
  return {reinterpret_cast<uint8_t*>(matrix.values.data), matrix.scales.as<float>(), columns, matrix.scales.shape[1],
          matrix.squares};
}

// ---- magnitudes of bf16 values: as integers, infinity and NaN are the largest. A word has those of two values.

__device__ inline uint32_t magnitudes(uint32_t word) {
  return word & 0x7fff7fffu;
}
__device__ inline uint32_t largest_of(uint32_t a, uint32_t b) {
  return __vmaxu2(a, b);
}
__device__ inline uint32_t largest_of(uint32_t a, uint32_t b, uint32_t c) {
  return __vimax3_u16x2(a, b, c);
}
// The largest magnitudes of the elements with even and with odd numbers.
__device__ inline uint32_t largest_of(const Pack<Bf16, 8>& pack) {
  return largest_of(largest_of(magnitudes(pack.words[0]), magnitudes(pack.words[1]), magnitudes(pack.words[2])),
                    magnitudes(pack.words[3]));
}
// The bits of the f32 with the larger magnitude of a word.
__device__ inline uint32_t f32_bits_of_larger(uint32_t word) {
  return max(word << 16, word & 0xffff0000u);
}

// ---- codes

__device__ inline uint32_t codes_of_four(float a, float b, float c, float d) {
  const auto two = [](float low, float high) {
    return uint32_t{__nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3)};
  };
  return two(a, b) | two(c, d) << 16;
}
__device__ inline float value_of_code(uint32_t code) {
  __nv_fp8_e4m3 value;
  value.__x = static_cast<__nv_fp8_storage_t>(code);
  return static_cast<float>(value);
}
// Two codes in the low half of a word.
__device__ inline float2 values_of_two(uint32_t codes) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3)));
}

inline constexpr int kFloat8Pack = 8;  // neighbouring elements that a thread rounds
inline constexpr int kFloat8Threads =
    static_cast<int>(kFloat8Block) / kFloat8Pack;  // of a block of values: half a warp

// Stores the elements (row, column) to (row, column + 7) of `to`.
__device__ inline void store_codes(const Pack<Bf16, kFloat8Pack>& pack, float inverse, int64_t row, int64_t column,
                                   const Float8Target& to) {
  *reinterpret_cast<uint2*>(to.values + row * to.pitch + column) =
      make_uint2(codes_of_four(pack[0] * inverse, pack[1] * inverse, pack[2] * inverse, pack[3] * inverse),
                 codes_of_four(pack[4] * inverse, pack[5] * inverse, pack[6] * inverse, pack[7] * inverse));
}

// The largest magnitudes of the threads of a block of values, in both halves of the word apart. All threads of a warp
// take part.
__device__ inline uint32_t largest_of_block(uint32_t largest) {
#pragma unroll
  for (int offset = kFloat8Threads / 2; offset > 0; offset /= 2) {
    largest = largest_of(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  }
  return largest;
}

// Rounds the elements (row, column) to (row, column + 7) of `to`, which has no squares. Neighbouring threads have
// neighbouring packs, and those of a block of values call this together with all threads of their warp. Without
// `inside`, nothing is written, and the pack must have zeros.
__device__ inline void round_in_row(const Pack<Bf16, kFloat8Pack>& pack, bool inside, int64_t row, int64_t column,
                                    const Float8Target& to) {
  const uint32_t largest = f32_bits_of_larger(largest_of_block(largest_of(pack)));
  const auto [scale, inverse] = float8_scale(largest, Float8ScaleKind::quotient);
  if (!inside) return;
  store_codes(pack, inverse, row, column, to);
  if (column % kFloat8Block == 0) to.scales[column / kFloat8Block * to.scale_pitch + row] = scale;
}

}  // namespace tessera::cuda
