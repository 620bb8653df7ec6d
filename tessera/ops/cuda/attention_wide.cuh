// Code shared by the kernels for wide heads. A thread block stays on its multiprocessor and computes one task after the
// other. Its first warpgroup, the producer, starts the copies of tiles into shared memory. The two others, the
// consumers, compute 64 rows each. After Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony
// and Low-precision" (2024), section 3.
#pragma once

#include "tessera/ops/cuda/attention_scores.cuh"
#include "tessera/ops/cuda/context.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/cuda/tma.cuh"
#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda {

inline constexpr int kWideColumns = 128;  // of a tile: a head's elements, then zeros
inline constexpr int kConsumers = 2, kGroupThreads = 4 * kWarp, kWideThreads = (1 + kConsumers) * kGroupThreads;
inline constexpr int kWideRows = 64 * kConsumers;  // rows of a task
inline constexpr int kConsumerWarps = 4 * kConsumers;

// Columns [0, 64) and [64, 128) of kRows rows, both in the layout SwizzledRows.
template <typename T, int kRows>
struct WideTile {
  T halves[2][kRows * 64];
  static constexpr int kBytes = kRows * kWideColumns * static_cast<int>(sizeof(T));
  static constexpr uint32_t kHalfUnits = kRows * 128 / 16;  // a descriptor's step from half to half
};

// Starts the copy of a head's rows from `row` on. `map` has boxes of kRows rows.
template <typename T, int kRows>
__device__ inline void copy_tile(const CUtensorMap& map, Barrier* barrier, WideTile<T, kRows>& to, int head, int row) {
  copy_box(map, barrier, to.halves[0], 0, head, row);
  copy_box(map, barrier, to.halves[1], 64, head, row);
}

// A row of qkv consists of heads of queries, of keys and of values. These functions return the number of all these
// heads, and the index of one of them:
inline int64_t heads_of_row(const AttentionShape& shape) {
  return shape.row_channels() / shape.head_dim;
}
__device__ inline int place_of_query(const Heads& heads, int head) {
  return head * heads.head_stride / heads.head_dim;
}
__device__ inline int place_of_key(const Heads& heads, int kv_head) {
  return (heads.key_offset + kv_head * heads.kv_head_stride) / heads.head_dim;
}
__device__ inline int place_of_value(const Heads& heads, int kv_head) {
  return (heads.value_offset + kv_head * heads.kv_head_stride) / heads.head_dim;
}

// A task as the producer announces it to the consumers. head < 0: there are no more tasks.
struct WideTask {
  int begin, length, index, head;
};

// Calls body(block, head) for the tasks of this thread block. All lanes of a warp must call it. Longer tasks come
// first. Every second round deals the tasks out in reverse order, so that all thread blocks receive about the same
// work.
template <typename Body>
__device__ inline void for_each_task(const Heads& heads, int num_heads, int num_blocks, const Body& body) {
  const int grid = static_cast<int>(gridDim.x), own = static_cast<int>(blockIdx.x), total = num_heads * num_blocks;
  for (int first = 0, round = 0; first < total; first += grid, ++round) {
    const int number = first + (round % 2 == 0 ? own : grid - 1 - own);
    const RowBlock block = find_longest_block(heads.starts, heads.num_sequences, kWideRows, number / num_heads);
    if (block.found) body(block, number % num_heads);
  }
}

// A thread block starts with 168 registers per thread. The producer gives back the registers that the consumers take.
// If the block has too few registers, a consumer waits for them forever.
template <int kProducer, int kConsumer>
struct Registers {
  static_assert(kProducer + kConsumers * kConsumer <= 3 * 168);
  __device__ static void give_back() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducer)); }
  __device__ static void take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumer)); }
};

// Barriers among warpgroups. meet() waits for all `threads`; announce() arrives and does not wait.
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void announce(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives once per warp.
__device__ inline void release(Barrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) arrive(barrier);
}

// Starts c = left·rightᵀ for 64 rows of `left` from `row` on and all kN rows of `right`.
template <typename T, int kRows, int kN>
__device__ inline void start_transposed(Accumulator<kN>& c, const WideTile<T, kRows>& left, int row,
                                        const WideTile<T, kN>& right) {
  const uint64_t a = tile_descriptor(left.halves[0] + row * 64), b = tile_descriptor(right.halves[0]);
  keep(c);
  begin_products();
#pragma unroll
  for (uint32_t d = 0; d < 8; ++d) {
    const uint32_t step = d % 4 * kStepInRow;
    start_product<T>(c, a + d / 4 * WideTile<T, kRows>::kHalfUnits + step,
                     b + d / 4 * WideTile<T, kN>::kHalfUnits + step, d > 0);
  }
  commit_products();
}
// Starts c += left·right for a left factor [64, kRows] in registers.
template <typename T, int kRows>
__device__ inline void start_sum(Accumulator<kWideColumns>& c, FragmentA (&left)[kRows / 16],
                                 const WideTile<T, kRows>& right) {
  const uint64_t b = tile_descriptor(right.halves[0], WideTile<T, kRows>::kHalfUnits);
  keep(c);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) keep(left[k]);
  begin_products();
#pragma unroll
  for (uint32_t k = 0; k < kRows / 16; ++k) start_product<T>(c, left[k], b + k * kStepOfRows);
  commit_products();
}

template <typename T, int kN>
__device__ inline void round_to_left(const Accumulator<kN>& c, FragmentA (&left)[kN / 16]) {
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) left[k] = as_left<T>(c, k, Same());
}

// Multiplies a warp's rows [16, 128] by factor(half), rounds them into the tile's rows from `row` on, and stores them
// at `to`.
template <typename T, int kRows, typename Factor>
__device__ inline void store_wide_rows(const Accumulator<kWideColumns>& c, WideTile<T, kRows>& tile, int row, T* to,
                                       int64_t row_stride, int num_rows, int num_columns, const Factor& factor) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = factor(half);
#pragma unroll
    for (int n = 0; n < kWideColumns / 8; ++n) {
      T* const own = tile.halves[n / 8] + row * 64;
      *reinterpret_cast<uint32_t*>(own + SwizzledRows::at(half * 8 + lane / 4, n % 8 * 8 + lane % 4 * 2)) =
          pack_two<T>(c.at[n][2 * half] * scale, c.at[n][2 * half + 1] * scale);
    }
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store_rows<SwizzledRows>(tile.halves[half] + row * 64, to + half * 64, row_stride, num_rows,
                             num_columns - half * 64);
  }
}

}  // namespace tessera::cuda
