// The layout of attention's arrays, and the assignment of thread blocks to blocks of rows.
#pragma once

#include <algorithm>

#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {

// The layout of qkv [N, W], of its gradient, and of o [N, C]. Kernels receive it by value.
struct Heads {
  int num_heads, head_dim, channels;  // channels of o
  int num_kv_heads, group;            // group: query heads per head of keys and values
  int width;                          // W: elements of a row of qkv
  int head_stride, kv_head_stride;    // elements from a head to the next one, within a row
  int key_offset, value_offset;       // where the key and the value of head 0 begin within a row
  int window;                         // a query sees at most this many keys; kNoWindow: all up to its own position
  const float* slopes;                // ALiBi slopes of the H heads, or null
  const int32_t* starts;              // [B+1]
  int num_sequences;

  static constexpr int kNoWindow = 1 << 30;

  __host__ static Heads of(const AttentionShape& shape, View starts) {
    const int d = static_cast<int>(shape.head_dim), heads = static_cast<int>(shape.num_heads), c = heads * d,
              kv_heads = static_cast<int>(shape.kv_heads());
    const bool interleaved = shape.layout == QkvLayout::interleaved;
    return {heads,
            d,
            c,
            kv_heads,
            heads / kv_heads,
            static_cast<int>(shape.row_channels()),
            interleaved ? 3 * d : d,
            interleaved ? 3 * d : d,
            interleaved ? d : c,
            interleaved ? 2 * d : c + kv_heads * d,
            shape.window > 0 ? static_cast<int>(std::min<int64_t>(shape.window, kNoWindow)) : kNoWindow,
            shape.alibi_slopes ? shape.alibi_slopes.as<float>() : nullptr,
            starts ? starts.as<int32_t>() : nullptr,
            starts ? static_cast<int>(starts.num_elems()) - 1 : 0};
  }
  __device__ float slope(int head) const { return slopes ? slopes[head] : 0.0f; }
  // The query of a head in a row of qkv.
  template <typename T>
  __device__ T* query(T* qkv, int64_t row, int head) const {
    return qkv + row * width + head * head_stride;
  }
  // The key and the value of a head of keys and values.
  template <typename T>
  __device__ T* key(T* qkv, int64_t row, int kv_head) const {
    return qkv + row * width + key_offset + kv_head * kv_head_stride;
  }
  template <typename T>
  __device__ T* value(T* qkv, int64_t row, int kv_head) const {
    return qkv + row * width + value_offset + kv_head * kv_head_stride;
  }
  // The first key that a query sees. A negative result stands for key 0.
  __device__ int first_key(int query) const { return query - window + 1; }
  // Keys are divided into blocks of `keys` keys. Returns the start of the first block with a key that the query sees.
  __device__ int first_block(int query, int keys) const { return max(0, first_key(query)) / keys * keys; }
  // Queries [key, end) of a sequence of `length` tokens see the key. Returns `end`.
  __device__ int end_of_queries(int key, int length) const { return min(length, key + min(window, length)); }
};

// One block of rows of a sequence.
struct RowBlock {
  int begin, length;  // the sequence's first row and number of rows
  int index;          // of the block in the sequence
  bool found;         // false: no block has the requested number
};

// Finds block `number`. Each sequence is divided into blocks of `rows` rows, and the blocks of all sequences are
// numbered together, from 0. All lanes of a warp must call this function with the same `number`. `starts` is in device
// memory, so the host does not know how many blocks exist. Kernels therefore use all numbers below num_blocks(), which
// is an upper bound. If a number has no block, `found` is false.
__device__ inline RowBlock find_block(const int32_t* starts, int num_sequences, int rows, int number) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int before = 0;
  for (int first = 0; first < num_sequences; first += kWarp) {
    const int b = first + lane;
    const int begin = b < num_sequences ? starts[b] : 0, length = b < num_sequences ? starts[b + 1] - begin : 0;
    const int blocks = (length + rows - 1) / rows;
    int through = blocks;  // inclusive prefix sum
#pragma unroll
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const int other = __shfl_up_sync(kAllLanes, through, offset);
      if (lane >= offset) through += other;
    }
    const unsigned holders = __ballot_sync(kAllLanes, number < before + through);
    if (holders) {
      const int holder = __ffs(static_cast<int>(holders)) - 1;
      const int index = number - before - (through - blocks);
      return {__shfl_sync(kAllLanes, begin, holder), __shfl_sync(kAllLanes, length, holder),
              __shfl_sync(kAllLanes, index, holder), true};
    }
    before += __shfl_sync(kAllLanes, through, kWarp - 1);
  }
  return {0, 0, 0, false};
}

// The same as find_block(), with the blocks in another order: within each group of 32 sequences, blocks with a higher
// index in their sequence come first. Blocks of queries with a high index have the most work, because late queries see
// more keys. Blocks of keys with a low index have the most work, because more queries see early keys. Callers with
// blocks of keys therefore count the index from the end of the sequence.
__device__ inline RowBlock find_longest_block(const int32_t* starts, int num_sequences, int rows, int number) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int first = 0; first < num_sequences; first += kWarp) {
    const int b = first + lane;
    const int begin = b < num_sequences ? starts[b] : 0, length = b < num_sequences ? starts[b + 1] - begin : 0;
    const int blocks = (length + rows - 1) / rows, all = warp_reduce(blocks, Sum());
    if (number >= all) {
      number -= all;
      continue;
    }
    for (int index = warp_reduce(blocks, Max()) - 1;; --index) {
      const unsigned holders = __ballot_sync(kAllLanes, blocks > index);
      const int count = __popc(holders);
      if (number < count) {
        const bool chosen = blocks > index && __popc(holders & ((1u << lane) - 1)) == number;
        const int holder = __ffs(static_cast<int>(__ballot_sync(kAllLanes, chosen))) - 1;
        return {__shfl_sync(kAllLanes, begin, holder), __shfl_sync(kAllLanes, length, holder), index, true};
      }
      number -= count;
    }
  }
  return {0, 0, 0, false};
}

// Returns an upper bound for the number of blocks of `rows` rows in `num_sequences` sequences. `num_rows` is the number
// of rows of all sequences together.
inline unsigned num_blocks(int64_t num_rows, int rows, int64_t num_sequences) {
  return static_cast<unsigned>(num_rows / rows + num_sequences);
}

}  // namespace tessera::cuda
