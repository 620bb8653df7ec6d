// Tiles of 16-bit elements in shared memory, in layouts for tensor cores, and the registers that hold a warp's part of
// a product.
#pragma once

#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {

// Code for GPUs before sm_80 omits the instructions below, which need sm_80. Callers check Context::code_major first.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kHasMma = false;
#else
inline constexpr bool kHasMma = true;
#endif

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Returns x, and hides from the compiler that the result is x. Without this, the compiler would compute values that
// depend on x once, before a loop, and keep them in registers. With it, the compiler computes them again at each use.
// Attention needs the registers for sums.
template <typename X>
__device__ inline X opaque(X x) {
  if constexpr (sizeof(X) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
  return x;
}

// Copies 16 bytes from global to shared memory, asynchronously. Writes zeros if `real` is false.
__device__ inline void copy_async(void* to, const void* from, bool real) {
  if constexpr (kHasMma)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(real ? 16 : 0));
}
// The same as copy_async(), for 4 bytes.
__device__ inline void copy_word_async(void* to, const void* from, bool real) {
  if constexpr (kHasMma)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(real ? 4 : 0));
}
// Puts all copies that this thread has started since its previous call of commit_copies() into one group.
__device__ inline void commit_copies() {
  if constexpr (kHasMma) asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the `kPending` latest groups of this thread (commit_copies()) are outstanding.
template <int kPending>
__device__ inline void wait_for_copies() {
  if constexpr (kHasMma) asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// PaddedRows and SwizzledRows are the two layouts of a tile. at() returns the index of an element in the tile. In both
// layouts, the 8 columns that a thread moves as 16 bytes are contiguous.

// Each row is 16 bytes longer than its elements. Therefore the eight rows that ldmatrix reads together are in different
// banks.
template <int kWidth>
struct PaddedRows {
  static constexpr int kColumns = kWidth, kStride = kWidth + 8;
  __device__ static int at(int row, int column) { return row * kStride + column; }
};

// Rows of 128 bytes. A row has eight pieces of 16 bytes. The order of the pieces differs among eight consecutive rows:
// the "128-byte swizzle" of the PTX ISA. The tile must begin at a multiple of 1,024 bytes.
struct SwizzledRows {
  static constexpr int kColumns = 64, kStride = 64;
  __device__ static int at(int row, int column) { return row * kStride + (column / 8 ^ row % 8) * 8 + column % 8; }
};

// Starts the copy of rows [first, first + kRows) of an array into a tile. The array has `num_rows` rows and
// `num_columns` columns. Elements of the tile outside the array become zeros. `from` points to row 0 of the array, and
// rows are `row_stride` elements apart. All kThreads threads of the block must call it.
template <typename Rows, int kRows, int kThreads, typename T>
__device__ inline void load_tile(T* tile, const T* from, int64_t row_stride, int first, int num_rows, int num_columns) {
  constexpr int kChunks = Rows::kColumns / 8;  // pieces of 16 bytes per row
  static_assert(kRows * kChunks % kThreads == 0);
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kThreads % (8 * kChunks) == 0) {  // a thread's rows are equal modulo 8, so their swizzle is equal
    constexpr int kStep = kThreads / kChunks;
    if (first + kRows <= num_rows && num_columns == Rows::kColumns) {
      T* to = tile + Rows::at(thread / kChunks, thread % kChunks * 8);
      const T* at = from + (first + thread / kChunks) * row_stride + thread % kChunks * 8;
#pragma unroll
      for (int row = 0; row < kRows; row += kStep, at += kStep * row_stride) {
        copy_async(to + row * Rows::kStride, at, true);
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int index = i * kThreads + thread, row = index / kChunks, column = index % kChunks * 8;
    const bool real = first + row < num_rows && column < num_columns;
    copy_async(tile + Rows::at(row, column), real ? from + (first + row) * row_stride + column : from, real);
  }
}

// Writes 16 rows of a tile to an array, 16 bytes per lane. `tile` and `to` point to the first of these rows. Rows from
// `num_rows` on and columns from `num_columns` on are not written.
template <typename Rows, typename T>
__device__ inline void store_rows(const T* tile, T* to, int64_t row_stride, int num_rows, int num_columns) {
  constexpr int kChunks = Rows::kColumns / 8;
  const int lane = opaque(static_cast<int>(threadIdx.x) % kWarp);
#pragma unroll
  for (int i = 0; i < 16 * kChunks / kWarp; ++i) {
    const int index = i * kWarp + lane;
    const int row = index / kChunks, column = index % kChunks * 8;
    if (row < num_rows && column < num_columns) {
      store_pack(to + row * row_stride + column, load_pack<T, 8>(tile + Rows::at(row, column)));
    }
  }
}

// A warp's 16 rows of a product, [16, kN], in registers. Let g = lane / 4 and t = lane % 4. at[n][0] and at[n][1] are
// row g, columns 8n + 2t and 8n + 2t + 1. at[n][2] and at[n][3] are the same columns of row g + 8 (PTX ISA:
// mma.m16n8k16 and wgmma.m64nNk16).
template <int kN>
struct Accumulator {
  float at[kN / 8][4];
  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) at[n][e] = 0;
    }
  }
};

// A warp's left factor [16, 16] in registers (PTX ISA: mma.m16n8k16 and wgmma.m64nNk16).
struct FragmentA {
  uint32_t at[4];
};
// Returns columns [16k, 16k + 16) of a product as a left factor: of(x) for each element x, rounded to T.
template <typename T, int kN, typename Of>
__device__ inline FragmentA as_left(const Accumulator<kN>& c, int k, const Of& of) {
  FragmentA a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&two)[4] = c.at[2 * k + i / 2];
    a.at[i] = pack_two<T>(of(two[i % 2 * 2]), of(two[i % 2 * 2 + 1]));
  }
  return a;
}
// The `of` for as_left() that returns its argument.
struct Same {
  __device__ float operator()(float x) const { return x; }
};

// Multiplies a warp's 16 rows of a product by factors, rounds them to T and writes them to a tile. `tile` points to the
// first of these rows. The factor of row 8·half + lane / 4 is factor(half).
template <typename Rows, typename T, typename Factor>
__device__ inline void round_into_rows(const Accumulator<Rows::kColumns>& c, T* tile, const Factor& factor) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = factor(half);
#pragma unroll
    for (int n = 0; n < Rows::kColumns / 8; ++n) {
      *reinterpret_cast<uint32_t*>(tile + Rows::at(half * 8 + lane / 4, n * 8 + lane % 4 * 2)) =
          pack_two<T>(c.at[n][2 * half] * scale, c.at[n][2 * half + 1] * scale);
    }
  }
}

}  // namespace tessera::cuda
