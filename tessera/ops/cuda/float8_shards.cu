// Parts of matrices in 8 bits, for ranks that gather weights so (Kernels::largest_of_squares, quantize_shard), and the
// transpose of a gathered weight.
#include <algorithm>

#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/float8.cuh"
#include "tessera/ops/cuda/reduce.cuh"

namespace tessera::cuda {
namespace {

constexpr int kTile = static_cast<int>(kFloat8Block);
constexpr int kElems = kFloat8Pack;  // neighbouring elements of a thread

struct Places {
  Float8Place at[kMaxFloat8Places];
  int64_t scale_pitches[kMaxFloat8Places];
  int count;
};

// The number of the square of an element of the array, or −1.
__device__ int square_of(const Places& places, int64_t elem) {
  for (int i = 0; i < places.count; ++i) {
    const Float8Place& place = places.at[i];
    const int64_t own = elem - place.offset;
    if (own < 0 || own >= place.rows * place.columns) continue;
    const int64_t row = own / place.columns, column = own - row * place.columns;
    return static_cast<int>(place.first_scale + row / kTile * places.scale_pitches[i] + column / kTile);
  }
  return -1;
}

// A thread has kElems values of a row. `largest` has zeros.
__global__ void __launch_bounds__(256)
    largest_of_squares_kernel(const Bf16* __restrict__ values, int64_t first, int64_t n, const Places places,
                              uint32_t* __restrict__ largest) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kElems;
  const int square = i < n ? square_of(places, first + i) : -1;
  const uint32_t own = square < 0 ? 0 : f32_bits_of_larger(largest_of(load_pack<Bf16, kElems>(values + i)));
  // One thread writes for all threads of a warp that have the same square.
  const uint32_t together = __match_any_sync(0xffffffffu, square);
  const uint32_t all = __reduce_max_sync(together, own);
  if (square >= 0 && __ffs(static_cast<int>(together)) - 1 == static_cast<int>(threadIdx.x) % kWarp) {
    atomicMax(largest + square, all);
  }
}

__global__ void __launch_bounds__(256)
    quantize_shard_kernel(const Bf16* __restrict__ values, int64_t first, int64_t n, const Places places,
                          const uint32_t* __restrict__ largest, int64_t parts, int64_t pitch, int64_t num_scales,
                          float* __restrict__ scales, uint8_t* __restrict__ codes) {
  const auto scale_of = [&](int64_t square) {
    uint32_t most = 0;
    for (int64_t r = 0; r < parts; ++r) most = max(most, largest[r * pitch + square]);
    return float8_scale(most, Float8ScaleKind::quotient);
  };
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, i = thread * kElems;
  if (thread < num_scales) scales[thread] = scale_of(thread).scale;
  if (i >= n) return;
  const int square = square_of(places, first + i);
  if (square >= 0) {
    store_codes(load_pack<Bf16, kElems>(values + i), scale_of(square).inverse, 0, i, {codes});
  } else {
    *reinterpret_cast<uint2*>(codes + i) = make_uint2(0, 0);
  }
}

// A thread block transposes a tile. Its shared memory has the words of 4 rows of a column, [column][group of rows],
// swizzled so that the threads of a warp use different banks.
constexpr int kTransposeThreads = 256;
__global__ void __launch_bounds__(kTransposeThreads)
    transpose8_kernel(const Float8Target from, int64_t R, int64_t K, const Float8Target to) {
  constexpr int kWords = kTile / 4, kWarps = kTransposeThreads / kWarp;
  static_assert(kWords == kWarp);
  __shared__ uint32_t words[kTile * kWords];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  if (threadIdx.x == 0) {
    to.scales[blockIdx.x * to.scale_pitch + blockIdx.y] = from.scales[blockIdx.y * from.scale_pitch + blockIdx.x];
  }
#pragma unroll
  for (int turn = 0; turn < kWords / kWarps; ++turn) {
    const int group = turn * kWarps + warp;
    const int64_t row = first_row + 4 * group, column = first_column + 4 * lane;
    uint32_t rows[4] = {};
    if (row < R && column < K) {  // both sizes are multiples of 4
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[i] = *reinterpret_cast<const uint32_t*>(from.values + (row + i) * from.pitch + column);
      }
    }
    const uint32_t low01 = __byte_perm(rows[0], rows[1], 0x5140), high01 = __byte_perm(rows[0], rows[1], 0x7362);
    const uint32_t low23 = __byte_perm(rows[2], rows[3], 0x5140), high23 = __byte_perm(rows[2], rows[3], 0x7362);
    const uint32_t columns[4] = {__byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
                                 __byte_perm(high01, high23, 0x5410), __byte_perm(high01, high23, 0x7632)};
#pragma unroll
    for (int j = 0; j < 4; ++j) words[(4 * lane + j) * kWords + (group ^ lane)] = columns[j];
  }
  __syncthreads();
#pragma unroll 4
  for (int turn = 0; turn < kTile / kWarps; ++turn) {
    const int own = turn * kWarps + warp;
    const int64_t column = first_column + own, row = first_row + 4 * lane;
    if (column < K && row < R) {
      *reinterpret_cast<uint32_t*>(to.values + column * to.pitch + row) = words[own * kWords + (lane ^ (own / 4))];
    }
  }
}

Places places_of(const Kernels::Float8Shard& shard) {
  TESSERA_ASSERT(shard.places.size() <= kMaxFloat8Places && shard.values.dtype == DType::bf16);
  TESSERA_ASSERT(shard.first % 16 == 0 && shard.values.num_elems() % 16 == 0);
  Places places{};
  for (const Float8Place& place : shard.places) {
    places.scale_pitches[places.count] = float8_scales(place.rows, place.columns, true)[1];
    places.at[places.count++] = place;
  }
  return places;
}

}  // namespace

void CudaKernels::largest_of_squares(Stream& stream, const Float8Shard& shard, View largest) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  check(cudaMemsetAsync(largest.data, 0, static_cast<size_t>(largest.bytes()), native), "cudaMemsetAsync");
  const int64_t n = shard.values.num_elems();
  if (n == 0) return;
  largest_of_squares_kernel<<<blocks_for(n / kElems, 256), 256, 0, native>>>(
      data_of<Bf16>(shard.values), shard.first, n, places_of(shard), reinterpret_cast<uint32_t*>(largest.data));
  check_launch("largest_of_squares_kernel");
}

void CudaKernels::quantize_shard(Stream& stream, const Float8Shard& shard, View largest, View scales, View codes) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  const int64_t n = shard.values.num_elems(), num_scales = scales.num_elems();
  TESSERA_ASSERT(codes.dtype == DType::e4m3 && codes.num_elems() == n);
  quantize_shard_kernel<<<blocks_for(std::max(n / kElems, num_scales), 256), 256, 0, native>>>(
      data_of<Bf16>(shard.values), shard.first, n, places_of(shard), reinterpret_cast<const uint32_t*>(largest.data),
      largest.shape[0], largest.shape[1], num_scales, scales.as<float>(), reinterpret_cast<uint8_t*>(codes.data));
  check_launch("quantize_shard_kernel");
}

void CudaKernels::transpose8(const Float8Matrix& from, const Float8Matrix& to) {
  const int64_t R = from.values.shape[0], K = from.values.shape[1];
  TESSERA_ASSERT(from.squares && to.squares && R % 16 == 0 && K % 16 == 0);
  const dim3 blocks(blocks_for(K, kTile), blocks_for(R, kTile));
  transpose8_kernel<<<blocks, kTransposeThreads, 0, context_.stream>>>(target_of(from, R, K), R, K,
                                                                       target_of(to, K, R));
  check_launch("transpose8_kernel");
}

}  // namespace tessera::cuda
