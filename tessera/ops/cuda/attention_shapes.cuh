// The layout of attention's arrays, and the assignment of thread blocks to blocks of sequences.
#pragma once

#include "tessera/ops/cuda/random.cuh"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {

// Describes qkv [N, 3C] or its gradient. Passed to kernels by value.
struct Heads {
  int num_heads, head_dim, channels;
  int head_stride, key_offset, value_offset;  // elements within a row
  const float* slopes;                        // [H] or null
  const int32_t* starts;                      // [B+1]
  int num_sequences;

  __host__ static Heads of(const AttentionShape& shape, View starts) {
    const int d = static_cast<int>(shape.head_dim), heads = static_cast<int>(shape.num_heads), c = heads * d;
    const bool interleaved = shape.layout == QkvLayout::interleaved;
    return {heads,
            d,
            c,
            interleaved ? 3 * d : d,
            interleaved ? d : c,
            interleaved ? 2 * d : 2 * c,
            shape.alibi_slopes ? shape.alibi_slopes.as<float>() : nullptr,
            starts ? starts.as<int32_t>() : nullptr,
            starts ? static_cast<int>(starts.num_elems()) - 1 : 0};
  }
  __device__ float slope(int head) const { return slopes ? slopes[head] : 0.0f; }
  // The query of a head in a row of qkv. Key and value are at their offsets from it.
  template <typename T>
  __device__ T* query(T* qkv, int64_t row, int head) const {
    return qkv + row * 3 * channels + head * head_stride;
  }
};

// One block of rows of a sequence.
struct Block {
  int begin, length;  // the sequence's first row and number of rows
  int index;          // of the block in the sequence
  bool found;
};

// Finds block `number` in the common numbering of all sequences' blocks of `rows` rows. All lanes of a warp call it.
// There are at most N / rows + B blocks; a launch requests that many.
__device__ inline Block find_block(const int32_t* starts, int num_sequences, int rows, int number) {
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

// The same blocks in another order: among any 32 sequences, the blocks with the highest index in their sequence come
// first. As blocks of queries they see most keys. Blocks of keys are counted from the other end, because most queries
// see the first keys.
__device__ inline Block find_longest_block(const int32_t* starts, int num_sequences, int rows, int number) {
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

inline unsigned num_blocks(int64_t num_rows, int rows, int64_t num_sequences) {
  return static_cast<unsigned>(num_rows / rows + num_sequences);
}

}  // namespace tessera::cuda
