// Tiles of 16-bit elements in shared memory, and products of them on tensor cores by mma.sync (sm_80 and later).
//
// A fragment of m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"): with g = lane / 4 and t = lane % 4,
// accumulator elements 0, 1 are row g, columns 2t, 2t + 1, and elements 2, 3 the same of row g + 8.
#pragma once

#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {

// Code for older GPUs has nothing of this, and nobody calls it there (Context::code_major).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kHasMma = false;
#else
inline constexpr bool kHasMma = true;
#endif

// A tile's rows are this much longer than its columns, so that the eight rows of an ldmatrix fall into different banks.
inline constexpr int kTilePad = 8;
template <int kColumns>
inline constexpr int kTileStride = kColumns + kTilePad;

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// 16 bytes from global to shared memory, asynchronously; zeros where not `real`.
__device__ inline void copy_async(void* to, const void* from, bool real) {
  if constexpr (kHasMma)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(real ? 16 : 0));
}
__device__ inline void commit_copies() {
  if constexpr (kHasMma) asm volatile("cp.async.commit_group;");
}
// Returns when all but the `kPending` latest groups of this thread have arrived.
template <int kPending>
__device__ inline void wait_for_copies() {
  if constexpr (kHasMma) asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

// Starts the copy of rows [first, first + kRows) of an array into a tile [kRows, kColumns]: zeros past `num_rows` rows
// and `num_columns` columns. `from` is to row 0; all kThreads threads of the block take part.
template <int kRows, int kColumns, int kThreads, typename T>
__device__ inline void load_tile(T* tile, const T* from, int64_t row_stride, int first, int num_rows, int num_columns) {
  constexpr int kChunks = kColumns / 8;  // of 16 bytes
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x), row = index / kChunks, column = index % kChunks * 8;
    const bool real = first + row < num_rows && column < num_columns;
    copy_async(tile + row * kTileStride<kColumns> + column, real ? from + (first + row) * row_stride + column : from,
               real);
  }
}

// Writes the rows of a warp's tile [kRows, kColumns] to an array, 16 bytes a lane. `to` is to the tile's row 0.
template <int kRows, int kColumns, typename T>
__device__ inline void store_tile(const T* tile, T* to, int64_t row_stride, int num_rows, int num_columns) {
  constexpr int kChunks = kColumns / 8;
  for (int index = static_cast<int>(threadIdx.x) % kWarp; index < kRows * kChunks; index += kWarp) {
    const int row = index / kChunks, column = index % kChunks * 8;
    if (row < num_rows && column < num_columns) {
      store_pack(to + row * row_stride + column, load_pack<T, 8>(tile + row * kTileStride<kColumns> + column));
    }
  }
}

struct FragmentA {
  uint32_t at[4];
};
struct FragmentB {
  uint32_t at[2];
};

// Rows [0, 16) and columns [0, 16) of a tile as a left factor. `tile` is to the corner.
template <int kColumns, typename T>
__device__ inline FragmentA load_left(const T* tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t address = shared_address(tile + lane % 16 * kTileStride<kColumns> + lane / 16 * 8);
  FragmentA a{};
  if constexpr (kHasMma)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.at[0]), "=r"(a.at[1]), "=r"(a.at[2]), "=r"(a.at[3])
                 : "r"(address));
  return a;
}

// Right factors for 16 columns of the product from the tile that holds them as rows: b = tileᵀ. `tile` is to row 0 of
// the 16 and the first of 16 inner elements.
template <int kColumns, typename T>
__device__ inline void load_right_transposed(const T* tile, FragmentB (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t address = shared_address(tile + (lane / 16 * 8 + lane % 8) * kTileStride<kColumns> + lane / 8 % 2 * 8);
  if constexpr (kHasMma)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].at[0]), "=r"(b[0].at[1]), "=r"(b[1].at[0]), "=r"(b[1].at[1])
                 : "r"(address));
}

// Right factors for 16 columns of the product from the tile as it is: b = tile. `tile` is to the first of 16 inner rows
// and column 0 of the 16.
template <int kColumns, typename T>
__device__ inline void load_right(const T* tile, FragmentB (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t address = shared_address(tile + lane % 16 * kTileStride<kColumns> + lane / 16 * 8);
  if constexpr (kHasMma)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].at[0]), "=r"(b[0].at[1]), "=r"(b[1].at[0]), "=r"(b[1].at[1])
                 : "r"(address));
}

// c += a·b
template <typename T>
__device__ inline void multiply_add(float (&c)[4], const FragmentA& a, const FragmentB& b) {
  if constexpr (!kHasMma) {
    __trap();
  } else if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
  }
}

// Two neighbouring accumulators, 16 columns, as a left factor of 16 inner elements.
template <typename T>
__device__ inline FragmentA as_left(const float (&c0)[4], const float (&c1)[4]) {
  return {{pack_two<T>(c0[0], c0[1]), pack_two<T>(c0[2], c0[3]), pack_two<T>(c1[0], c1[1]), pack_two<T>(c1[2], c1[3])}};
}

// A warp's product [16·kM, kN] in registers: at[m][n][e] as the header's comment says.
template <int kM, int kN>
struct Accumulator {
  float at[kM][kN / 8][4];
  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) at[m][n][e] = 0;
      }
    }
  }
};

// c += left · rightᵀ over kD inner elements: left [16·kM, kD] and right [kN, kD] are tiles.
template <int kM, int kN, int kD, typename T>
__device__ inline void multiply_transposed(Accumulator<kM, kN>& c, const T* left, const T* right) {
#pragma unroll
  for (int d = 0; d < kD; d += 16) {
    FragmentA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = load_left<kD>(left + m * 16 * kTileStride<kD> + d);
#pragma unroll
    for (int n = 0; n < kN; n += 16) {
      FragmentB b[2];
      load_right_transposed<kD>(right + n * kTileStride<kD> + d, b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(c.at[m][n / 8], a[m], b[0]);
        multiply_add<T>(c.at[m][n / 8 + 1], a[m], b[1]);
      }
    }
  }
}

// c += left · right over kK inner elements: left is a product in registers, rounded to T; right [kK, kD] is a tile.
template <typename T, int kM, int kK, int kD>
__device__ inline void multiply_registers(Accumulator<kM, kD>& c, const Accumulator<kM, kK>& left, const T* right) {
#pragma unroll
  for (int k = 0; k < kK; k += 16) {
    FragmentA a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = as_left<T>(left.at[m][k / 8], left.at[m][k / 8 + 1]);
#pragma unroll
    for (int n = 0; n < kD; n += 16) {
      FragmentB b[2];
      load_right<kD>(right + k * kTileStride<kD> + n, b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add<T>(c.at[m][n / 8], a[m], b[0]);
        multiply_add<T>(c.at[m][n / 8 + 1], a[m], b[1]);
      }
    }
  }
}

// Rounds a warp's product into the rows of a tile, row r times factor(m, half) with r = 16·m + 8·half + lane / 4.
template <typename T, int kM, int kD, typename Factor>
__device__ inline void round_into_tile(const Accumulator<kM, kD>& c, T* tile, const Factor& factor) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = factor(m, half);
      T* const row = tile + (m * 16 + half * 8 + lane / 4) * kTileStride<kD> + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        *reinterpret_cast<uint32_t*>(row + n * 8) =
            pack_two<T>(c.at[m][n][2 * half] * scale, c.at[m][n][2 * half + 1] * scale);
      }
    }
  }
}

}  // namespace tessera::cuda
