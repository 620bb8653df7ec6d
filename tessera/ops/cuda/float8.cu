// Matrices in 8 bits (Kernels::quantize, dequantize8).
#include <cuda_fp8.h>

#include "tessera/base/float8.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kTile = static_cast<int>(kFloat8Block);
constexpr int kThreads = 256;
constexpr int kRowElems = 8;                    // of a thread, when it reads a row of the tile
constexpr int kRowThreads = kTile / kRowElems;  // of a row: neighbours in a warp
constexpr int kRowsAtATime = kThreads / kRowThreads;
constexpr int kColumnElems = kTile * kTile / kThreads;  // of a thread, when it reads a column: half of the column

__device__ uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

__device__ uint32_t codes_of_two(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
__device__ uint32_t codes_of_four(const float (&x)[4], float inverse) {
  return codes_of_two(x[0] * inverse, x[1] * inverse) | codes_of_two(x[2] * inverse, x[3] * inverse) << 16;
}

struct Target {
  uint8_t* values = nullptr;  // null: not wanted
  float* scales = nullptr;
};

// A thread block rounds one tile of x [R, K], which has one block of 8-bit values in each row, and one in each column.
// `padded`: float8_terms(R). K is a multiple of 16.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const T* __restrict__ x, int64_t R, int64_t K, int64_t padded, Target rows, Target columns) {
  // Rows of the tile start in different banks, and threads that read neighbouring columns read different banks.
  constexpr int kPitch = kTile + 2;
  __shared__ T tile[kTile * kPitch];
  __shared__ uint32_t half_largest[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  const int column = thread % kRowThreads * kRowElems;
  const bool has_column = first_column + column < K;  // K is a multiple of kRowElems
#pragma unroll 4
  for (int row = thread / kRowThreads; row < kTile; row += kRowsAtATime) {
    const int64_t at_row = first_row + row;
    Pack<T, kRowElems> pack;
    const bool inside = has_column && at_row < R;
    if (inside) pack = *reinterpret_cast<const Pack<T, kRowElems>*>(x + at_row * K + first_column + column);
    float values[kRowElems];
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kRowElems; ++i) {
      values[i] = inside ? pack[i] : 0;
      largest = max(largest, magnitude_bits(values[i]));
      if (columns.values) tile[row * kPitch + column + i] = from_acc<T>(values[i]);
    }
    if (!rows.values) continue;
#pragma unroll
    for (int offset = kRowThreads / 2; offset > 0; offset /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    const auto [scale, inverse] = float8_scale(largest, Float8ScaleKind::quotient);
    if (!inside) continue;
    const float low[4] = {values[0], values[1], values[2], values[3]},
                high[4] = {values[4], values[5], values[6], values[7]};
    *reinterpret_cast<uint2*>(rows.values + at_row * K + first_column + column) =
        make_uint2(codes_of_four(low, inverse), codes_of_four(high, inverse));
    if (column == 0) rows.scales[blockIdx.x * R + at_row] = scale;
  }
  if (!columns.values) return;
  __syncthreads();
  const int own = thread % kTile, half = thread / kTile;
  uint32_t largest = 0;
#pragma unroll 8
  for (int i = 0; i < kColumnElems; ++i) {
    largest = max(largest, magnitude_bits(to_acc(tile[(half * kColumnElems + i) * kPitch + own])));
  }
  half_largest[thread] = largest;
  __syncthreads();
  largest = max(largest, half_largest[(thread + kTile) % kThreads]);
  const auto [scale, inverse] = float8_scale(largest, Float8ScaleKind::power_of_two);
  const int64_t at_column = first_column + own;
  if (at_column >= K) return;
  if (half == 0) columns.scales[blockIdx.y * K + at_column] = scale;
#pragma unroll
  for (int i = 0; i < kColumnElems; i += 16) {
    const int row = half * kColumnElems + i;
    if (first_row + row >= padded) break;  // `padded` is a multiple of 16
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float four[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) four[j] = to_acc(tile[(row + 4 * w + j) * kPitch + own]);
      words[w] = codes_of_four(four, inverse);
    }
    *reinterpret_cast<uint4*>(columns.values + at_column * padded + first_row + row) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <typename T>
__global__ void dequantize8_kernel(const uint8_t* __restrict__ values, const float* __restrict__ scales, int64_t R,
                                   int64_t K, bool transposed, int64_t x_rows, int64_t x_columns, T* __restrict__ x) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= x_rows * x_columns) return;
  const int64_t row = i / x_columns, column = i % x_columns;
  const int64_t r = transposed ? column : row, k = transposed ? row : column;
  __nv_fp8_e4m3 code;
  code.__x = values[r * K + k];
  x[i] = from_acc<T>(static_cast<float>(code) * scales[k / kTile * R + r]);
}

Target target_of(const Float8Matrix& matrix, int64_t rows, int64_t columns) {
  if (!matrix) return {};
  TESSERA_ASSERT(matrix.values.dtype == DType::e4m3 && matrix.values.shape == (Shape{rows, columns}) &&
                 matrix.scales.shape == (Shape{ceil_divide(columns, kFloat8Block), rows}));
  return {reinterpret_cast<uint8_t*>(matrix.values.data), matrix.scales.as<float>()};
}

}  // namespace

void CudaKernels::quantize(const Quantize& call) {
  const int64_t R = call.x.shape[0], K = call.x.shape[1], padded = float8_terms(R);
  TESSERA_ASSERT(K % 16 == 0);
  const Target rows = target_of(call.rows, R, K), columns = target_of(call.columns, K, padded);
  if (R == 0) return;
  const dim3 blocks(blocks_for(K, kTile), blocks_for(R, kTile));
  TESSERA_ASSERT(blocks.y < 65536);
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      quantize_kernel<T><<<blocks, kThreads, 0, context_.stream>>>(reinterpret_cast<const T*>(call.x.data), R, K,
                                                                   padded, rows, columns);
    } else {
      TESSERA_ASSERT(!"only 16-bit arrays are rounded to 8 bits");
    }
  });
  check_launch("quantize_kernel");
}

void CudaKernels::dequantize8(const Float8Matrix& from, bool transposed, View x) {
  const int64_t R = from.values.shape[0], K = from.values.shape[1];
  TESSERA_ASSERT(x.shape[transposed ? 1 : 0] == R && x.shape[transposed ? 0 : 1] <= K);
  if (x.num_elems() == 0) return;
  const Target source = target_of(from, R, K);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    dequantize8_kernel<T><<<blocks_for(x.num_elems(), kThreads), kThreads, 0, context_.stream>>>(
        source.values, source.scales, R, K, transposed, x.shape[0], x.shape[1], reinterpret_cast<T*>(x.data));
  });
  check_launch("dequantize8_kernel");
}

}  // namespace tessera::cuda
