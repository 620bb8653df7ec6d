// Attention forward on tensor cores, after Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
// Partitioning" (2023), algorithm 1: a block of queries stays, blocks of keys pass by, with a running maximum.
#include <limits>

#include "tessera/ops/cuda/attention_mma.cuh"

namespace tessera::cuda {
namespace {

constexpr int kKeys = 64, kQueries = kMmaWarps * 16 * kM;  // of a block
template <int D>
inline constexpr size_t kSharedBytes = sizeof(uint16_t) * kTileStride<D>*(kQueries + 4 * kKeys);
// Blocks on a multiprocessor that registers are limited for.
template <int D>
inline constexpr int kBlocks = D <= 64 ? 3 : 2;

// Maximum, in powers of two, and this thread's part of the sum of each row that the thread has elements of.
struct Softmax {
  float maximum[kM][2], sum[kM][2];
};

// s: products q·k of a block of keys from k0 on, for the rows from `first_row` of the sequence on. They become
// exp(score − maximum); o is brought to the new maximum.
template <int D>
__device__ inline void softmax_block(Accumulator<kM, kKeys>& s, const Scores& scores, int first_row, int k0,
                                     Softmax& softmax, Accumulator<kM, D>& o) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool masks = k0 + kKeys - 1 > first_row;
  const float first_bias = scores.bias(k0 + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8 + lane / 4;
      float most = softmax.maximum[m][half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = k0 + n * 8 + lane % 4 * 2 + e;
          const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e), first_bias);
          float& x = s.at[m][n][2 * half + e];
          x = masks && key > row ? -std::numeric_limits<float>::infinity() : fmaf(x, scores.scale, bias);
          most = fmaxf(most, x);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));  // finite: key 0 is seen by all
      const float correction = fast_exp2(softmax.maximum[m][half] - most);
      float sum = softmax.sum[m][half] * correction;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s.at[m][n][2 * half + e];
          x = fast_exp2(x - most);
          sum += x;
        }
      }
      softmax.maximum[m][half] = most;
      softmax.sum[m][half] = sum;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        o.at[m][n][2 * half] *= correction;
        o.at[m][n][2 * half + 1] *= correction;
      }
    }
  }
}

// Dropout's factor of what is kept is left to the end.
__device__ inline void drop(Accumulator<kM, kKeys>& p, const Mask& mask, const Block& block, int head, int first_row,
                            int k0) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(first_row + m * 16 + half * 8 + lane / 4, block.length - 1);
      const uint32_t kept = kept_keys<kKeys>(mask, block.begin + row, head, k0);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (!keeps(kept, n, e)) p.at[m][n][2 * half + e] = 0;
        }
      }
    }
  }
}

template <typename T, int D, bool kDrops>
__global__ void __launch_bounds__(kMmaThreads, kBlocks<D>)
    forward_kernel(const T* __restrict__ qkv, Heads heads, Mask mask, float scale, T* __restrict__ o,
                   float* __restrict__ log_sum_exp) {
  constexpr int kTile = kKeys * kTileStride<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const q_tile = reinterpret_cast<T*>(shared);
  T *const k_tiles = q_tile + kQueries * kTileStride<D>, *const v_tiles = k_tiles + 2 * kTile;

  const int head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const Block block = find_block(heads.starts, heads.num_sequences, kQueries, static_cast<int>(blockIdx.x));
  if (!block.found) return;
  // The last block of a sequence sees most keys and starts first.
  const int q0 = ((block.length - 1) / kQueries - block.index) * kQueries;
  const int64_t stride = 3 * heads.channels;
  const T* const queries = heads.query(qkv, block.begin, head);
  const auto load_keys = [&](int k0, int slot) {
    load_tile<kKeys, D, kMmaThreads>(k_tiles + slot * kTile, queries + heads.key_offset, stride, k0, block.length,
                                     heads.head_dim);
    load_tile<kKeys, D, kMmaThreads>(v_tiles + slot * kTile, queries + heads.value_offset, stride, k0, block.length,
                                     heads.head_dim);
    commit_copies();
  };
  load_tile<kQueries, D, kMmaThreads>(q_tile, queries, stride, q0, block.length, heads.head_dim);
  load_keys(0, 0);

  const Scores scores(scale, heads.slope(head));
  const int first_row = q0 + warp * 16 * kM, end = min(block.length, q0 + kQueries);
  T* const own = q_tile + warp * 16 * kM * kTileStride<D>;
  Accumulator<kM, D> result;
  result.clear();
  Softmax softmax;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      softmax.maximum[m][half] = -std::numeric_limits<float>::infinity();
      softmax.sum[m][half] = 0;
    }
  }
  for (int k0 = 0, slot = 0; k0 < end; k0 += kKeys, slot ^= 1) {
    wait_for_copies<0>();
    __syncthreads();  // this block's keys are there, and everybody is done with those before them
    if (k0 + kKeys < end) load_keys(k0 + kKeys, slot ^ 1);
    if (first_row >= block.length || k0 >= first_row + 16 * kM) continue;  // nothing that this warp sees
    Accumulator<kM, kKeys> s;
    s.clear();
    multiply_transposed<kM, kKeys, D>(s, own, k_tiles + slot * kTile);
    softmax_block(s, scores, first_row, k0, softmax, result);
    if constexpr (kDrops) drop(s, mask, block, head, first_row, k0);
    multiply_registers<T>(result, s, v_tiles + slot * kTile);
  }
  if (first_row >= block.length) return;

#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax.sum[m][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      softmax.sum[m][half] = sum;
      const int row = first_row + m * 16 + half * 8 + lane / 4;
      if (log_sum_exp && lane % 4 == 0 && row < block.length) {
        log_sum_exp[static_cast<int64_t>(block.begin + row) * heads.num_heads + head] =
            (softmax.maximum[m][half] + log2f(sum)) * kLn2;
      }
    }
  }
  __syncwarp();  // a warp reads and writes its own queries' rows alone
  round_into_tile(result, own,
                  [&](int m, int half) { return (kDrops ? mask.scale<float>() : 1.0f) / softmax.sum[m][half]; });
  __syncwarp();
  store_tile<16 * kM, D>(own,
                         o + static_cast<int64_t>(block.begin + first_row) * heads.channels + head * heads.head_dim,
                         heads.channels, block.length - first_row, heads.head_dim);
}

}  // namespace

bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape) {
  return context.code_major >= 8 && size_of(qkv.dtype) == 2 && shape.head_dim % 8 == 0 && shape.head_dim <= 128;
}

void mma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                           const Dropout& dropout, View o, View log_sum_exp) {
  const Heads heads = Heads::of(shape, starts);
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  with_mma_kernel(qkv.dtype, shape.head_dim, dropout, [&](auto zero, auto d, auto drops) {
    using T = decltype(zero);
    const dim3 grid(num_blocks(qkv.shape[0], kQueries, heads.num_sequences), static_cast<unsigned>(heads.num_heads));
    allow_shared(forward_kernel<T, d, drops>, kSharedBytes<d>);
    forward_kernel<T, d, drops><<<grid, kMmaThreads, kSharedBytes<d>, context.stream>>>(
        data_of<T>(qkv), heads, Mask::of(dropout), scale, data_of<T>(o), data_of<float>(log_sum_exp));
  });
  check_launch("attention forward_kernel");
}

}  // namespace tessera::cuda
