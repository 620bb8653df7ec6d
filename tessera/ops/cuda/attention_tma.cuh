// Code shared by the attention kernels that copy tiles with Hopper's copy engine (TMA). A task computes 128 rows of a
// sequence for one head. The rows are queries in forward and keys in backward. Each thread block stays on its
// multiprocessor and computes one task after another. A thread block has three warpgroups. The first warpgroup, the
// producer, starts the copies of tiles into shared memory. Each of the other two warpgroups, the consumers, computes 64
// rows of the task. The design follows Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and
// Low-precision" (2024), section 3.
#pragma once

#include "tessera/ops/cuda/attention_scores.cuh"
#include "tessera/ops/cuda/context.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/cuda/tma.cuh"
#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda {

inline constexpr int kConsumers = 2, kGroupThreads = 4 * kWarp, kTaskThreads = (1 + kConsumers) * kGroupThreads;
inline constexpr int kTaskRows = 64 * kConsumers;  // rows of queries or of keys that a task computes
inline constexpr int kConsumerWarps = 4 * kConsumers;

// A tile of kRows rows. A row has one head's elements, then zeros up to kColumns (64 or 128) columns. Columns [0, 64)
// and [64, 128) are separate parts, both in the layout SwizzledRows.
template <typename T, int kRows, int kColumns>
struct HeadTile {
  static constexpr int kParts = kColumns / 64;
  T parts[kParts][kRows * 64];
  static constexpr int kBytes = kRows * kColumns * static_cast<int>(sizeof(T));
  static constexpr uint32_t kPartUnits = kRows * 128 / 16;  // size of a part, in units of 16 bytes (wgmma.cuh)
};

// Starts the copy of rows [row, row + kRows) of a head. `map` must describe boxes of kRows rows.
template <typename T, int kRows, int kColumns>
__device__ inline void copy_tile(const CUtensorMap& map, Barrier* barrier, HeadTile<T, kRows, kColumns>& to, int head,
                                 int row) {
#pragma unroll
  for (int part = 0; part < kColumns / 64; ++part) copy_box(map, barrier, to.parts[part], part * 64, head, row);
}

// A row of qkv consists of heads of queries, of keys and of values. heads_of_row() returns the number of all these
// heads. The three functions after it return the index of one head among them.
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

inline bool supports_tma(const Context& context, View qkv, const AttentionShape& shape, const Dropout& dropout) {
  return context.has_wgmma && size_of(qkv.dtype) == 2 && shape.head_dim % 8 == 0 && shape.head_dim <= 128 &&
         dropout.rate == 0;
}
// Returns true if the thread blocks have at least about four tasks each, and the sequences have at least 128 rows on
// average. Otherwise kernels with smaller tasks are faster, because they use more multiprocessors.
inline bool fills_multiprocessors(const Context& context, View qkv, View starts, int64_t num_heads) {
  const int64_t full_tasks = qkv.shape[0] / kTaskRows, sequences = starts.num_elems() - 1;
  return full_tasks >= sequences && full_tasks * num_heads >= 4 * context.num_multiprocessors;
}

// Calls body(zero, columns). `zero` has the element type. The constant `columns` is the number of columns of a tile.
template <typename Body>
void with_head_tiles(DType dtype, int64_t head_dim, const Body& body) {
  const auto with_columns = [&](auto zero) {
    if (head_dim <= 64) return body(zero, std::integral_constant<int, 64>());
    body(zero, std::integral_constant<int, 128>());
  };
  if (dtype == DType::f16) return with_columns(Half{});
  with_columns(Bf16{});
}

// A thread block starts with 168 registers per thread. The producer gives some of its registers back, and keeps
// kProducer per thread. The consumers take the free registers, and then have kConsumer per thread. If the consumers
// needed more registers than the producer gives back, take() would wait forever.
template <int kProducer, int kConsumer>
struct Registers {
  static_assert(kProducer + kConsumers * kConsumer <= 3 * 168);
  __device__ static void give_back() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducer)); }
  __device__ static void take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumer)); }
};

// Numbered barriers among the threads of one or more warpgroups. Both functions arrive at barrier number `barrier`.
// meet() then waits until `threads` threads have arrived. announce() does not wait.
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void announce(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// All lanes of a warp must call release(). The warp then arrives once at `barrier`.
__device__ inline void release(Barrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) arrive(barrier);
}

// Returns the task that the producer announced. Only lane 0 reads it, and sends it to the other lanes of the warp. Lane
// 0 later arrives at a barrier (release()), and only then does the producer overwrite the task. If other lanes also
// read the task, compute-sanitizer's racecheck would report a race, because these lanes do not arrive at the barrier.
template <typename Task>
__device__ inline Task read_task(const Task& announced) {
  constexpr int kWords = sizeof(Task) / sizeof(int);
  static_assert(sizeof(Task) == kWords * sizeof(int));
  int words[kWords] = {};
  if (threadIdx.x % kWarp == 0) memcpy(words, &announced, sizeof(Task));
#pragma unroll
  for (int& word : words) word = __shfl_sync(kAllLanes, word, 0);
  Task task;
  memcpy(&task, words, sizeof(Task));
  return task;
}

// Starts c = left·rightᵀ for rows [row, row + 64) of `left` and all kN rows of `right`.
template <typename T, int kRows, int kN, int kColumns>
__device__ inline void start_transposed(Accumulator<kN>& c, const HeadTile<T, kRows, kColumns>& left, int row,
                                        const HeadTile<T, kN, kColumns>& right) {
  const uint64_t a = opaque(tile_descriptor(left.parts[0] + row * 64)), b = opaque(tile_descriptor(right.parts[0]));
  keep(c);
  begin_products();
#pragma unroll
  for (uint32_t d = 0; d < kColumns / 16; ++d) {
    const uint32_t step = d % 4 * kStepInRow;
    start_product<T, Inner::along_rows>(c, a + d / 4 * HeadTile<T, kRows, kColumns>::kPartUnits + step,
                                        b + d / 4 * HeadTile<T, kN, kColumns>::kPartUnits + step, d > 0);
  }
  commit_products();
}
// Starts c += left·right for a left factor [64, kRows] in registers.
template <typename T, int kRows, int kColumns>
__device__ inline void start_sum(Accumulator<kColumns>& c, FragmentA (&left)[kRows / 16],
                                 const HeadTile<T, kRows, kColumns>& right) {
  const uint64_t b = opaque(tile_descriptor(right.parts[0], HeadTile<T, kRows, kColumns>::kPartUnits));
  keep(c);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) keep(left[k]);
  begin_products();
#pragma unroll
  for (uint32_t k = 0; k < kRows / 16; ++k) start_product<T>(c, left[k], b + k * kStepOfRows);
  commit_products();
}

// Starts c += left·right for a left factor in shared memory: a tile [64, kRows] in the layout SwizzledRows.
template <typename T, int kRows, int kColumns>
__device__ inline void start_sum(Accumulator<kColumns>& c, const T* left, const HeadTile<T, kRows, kColumns>& right) {
  static_assert(kRows == 64);
  const uint64_t a = opaque(tile_descriptor(left)),
                 b = opaque(tile_descriptor(right.parts[0], HeadTile<T, kRows, kColumns>::kPartUnits));
  keep(c);
  begin_products();
#pragma unroll
  for (uint32_t k = 0; k < kRows / 16; ++k) {
    start_product<T, Inner::across_rows_of_right>(c, a + k * kStepInRow, b + k * kStepOfRows, true);
  }
  commit_products();
}

template <typename T, int kN>
__device__ inline void round_to_left(const Accumulator<kN>& c, FragmentA (&left)[kN / 16]) {
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) left[k] = as_left<T>(c, k, Same());
}

// Multiplies a warp's 16 rows of `c` by factors, rounds the products to type T, and writes them to `tile`. Then stores
// the first num_rows rows and num_columns columns at `to`. factor(half) is the factor of row 8·half + lane / 4. `tile`
// is space in shared memory that only this warp uses: parts of 64 columns, `part_stride` elements apart, in the layout
// SwizzledRows.
template <typename T, int kN, typename Factor>
__device__ inline void store_product(const Accumulator<kN>& c, T* tile, int part_stride, T* to, int64_t row_stride,
                                     int num_rows, int num_columns, const Factor& factor) {
  const int lane = opaque(static_cast<int>(threadIdx.x) % kWarp);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = factor(half);
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      T* const part = tile + n / 8 * part_stride;
      *reinterpret_cast<uint32_t*>(part + SwizzledRows::at(half * 8 + lane / 4, n % 8 * 8 + lane % 4 * 2)) =
          pack_two<T>(c.at[n][2 * half] * scale, c.at[n][2 * half + 1] * scale);
    }
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < (kN + 63) / 64; ++part) {
    store_rows<SwizzledRows>(tile + part * part_stride, to + part * 64, row_stride, num_rows,
                             min(num_columns, kN) - part * 64);
  }
}

}  // namespace tessera::cuda
