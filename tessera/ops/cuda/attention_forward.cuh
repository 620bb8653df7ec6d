// Attention forward on tensor cores, after Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work
// Partitioning" (2023), algorithm 1. A thread block keeps kTileRows queries in shared memory, and loads kForwardKeys
// keys with their values at a time. For each query, it keeps the maximum of the scores so far, and the sum of their
// exponentials. mma.cuh or wgmma.cuh computes the matrix products.
#pragma once

#include <cmath>
#include <limits>

#include "tessera/ops/cuda/attention_scores.cuh"
#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

inline constexpr int kForwardKeys = 64;  // keys that are loaded at a time
template <typename Products>
inline constexpr size_t kForwardSharedBytes = sizeof(uint16_t) * Products::Rows::kStride*(kTileRows + 4 * kForwardKeys);

// s holds the products q·k of the keys [k0, k0 + kForwardKeys) and the warp's queries [first_row, first_row + 16).
// Replaces these products by exp(score − maximum). `maximum` is the greatest score of the query so far. Updates
// `softmax`, and rescales o to the new maximum.
template <int D>
__device__ inline void softmax_block(Accumulator<kForwardKeys>& s, const Scores& scores, int first_row, int k0,
                                     int window, Softmax& softmax, Accumulator<D>& o) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float first_bias = scores.bias(k0 + lane % 4 * 2);
#pragma unroll
  for (int n = 0; n < kForwardKeys / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e % 2), first_bias);
      s.at[n][e] = fmaf(s.at[n][e], scores.scale, bias);
    }
  }
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  if (needs_mask(first_row, k0, kForwardKeys, window)) mask_scores(s, first_row, k0, window, kHidden);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = softmax.maximum[half];
#pragma unroll
    for (int n = 0; n < kForwardKeys / 8; ++n) {
      most = fmaxf(most, fmaxf(s.at[n][2 * half], s.at[n][2 * half + 1]));
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    // With a window, a query may see no key of the first blocks that are loaded. Its maximum score is then −∞, and
    // −∞ − (−∞) would be NaN.
    const float origin = most == kHidden ? 0.0f : most;
    const float correction = fast_exp2(softmax.maximum[half] - origin);
    float sum = softmax.sum[half] * correction;
#pragma unroll
    for (int n = 0; n < kForwardKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s.at[n][2 * half + e];
        x = fast_exp2(x - origin);
        sum += x;
      }
    }
    softmax.maximum[half] = most;
    softmax.sum[half] = sum;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o.at[n][2 * half] *= correction;
      o.at[n][2 * half + 1] *= correction;
    }
  }
}

// Sets dropped probabilities to 0. The kernel applies the factor 1 / (1 − rate) of the kept probabilities at its end,
// to the results.
__device__ inline void drop(Accumulator<kForwardKeys>& p, const Mask& mask, const RowBlock& block, int head,
                            int first_row, int k0) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(first_row + half * 8 + lane / 4, block.length - 1);
    const uint32_t kept = kept_keys<kForwardKeys>(mask, block.begin + row, head, k0);
#pragma unroll
    for (int n = 0; n < kForwardKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (!keeps(kept, n, e)) p.at[n][2 * half + e] = 0;
      }
    }
  }
}

// kBlocks: the number of thread blocks that must fit on a multiprocessor at the same time. It limits the registers of a
// thread.
template <typename Products, bool kDrops, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks)
    attention_forward_kernel(const typename Products::Element* __restrict__ qkv, Heads heads, Mask mask, float scale,
                             typename Products::Element* __restrict__ o, float* __restrict__ log_sum_exp) {
  using T = typename Products::Element;
  using Rows = typename Products::Rows;
  constexpr int kTile = kForwardKeys * Rows::kStride;
  extern __shared__ __align__(1024) unsigned char shared_tiles[];
  T* const q_tile = reinterpret_cast<T*>(shared_tiles);
  T *const k_tiles = q_tile + kTileRows * Rows::kStride, *const v_tiles = k_tiles + 2 * kTile;

  const int head = static_cast<int>(blockIdx.x) % heads.num_heads, warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kTileRows, static_cast<int>(blockIdx.x) / heads.num_heads);
  if (!block.found) return;
  const int q0 = block.index * kTileRows;
  const int64_t stride = heads.width;
  const T *const keys = heads.key(qkv, block.begin, head / heads.group), *const values = heads.value(
                                                                             qkv, block.begin, head / heads.group);
  const auto load_keys = [&](int k0, int stage) {
    load_tile<Rows, kForwardKeys, kTileThreads>(k_tiles + stage * kTile, keys, stride, k0, block.length,
                                                heads.head_dim);
    load_tile<Rows, kForwardKeys, kTileThreads>(v_tiles + stage * kTile, values, stride, k0, block.length,
                                                heads.head_dim);
    commit_copies();
  };
  const int first_block = heads.first_block(q0, kForwardKeys);
  load_tile<Rows, kTileRows, kTileThreads>(q_tile, heads.query(qkv, block.begin, head), stride, q0, block.length,
                                           heads.head_dim);
  load_keys(first_block, 0);

  const Scores scores(scale, heads.slope(head));
  const int first_row = q0 + warp * 16, together = q0 + first_row_together<Products>(),
            end = min(block.length, q0 + kTileRows);
  Accumulator<Rows::kColumns> result;
  result.clear();
  Softmax softmax;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    softmax.maximum[half] = -std::numeric_limits<float>::infinity();
    softmax.sum[half] = 0;
  }
  for (int k0 = first_block, stage = 0; k0 < end; k0 += kForwardKeys, stage ^= 1) {
    wait_for_copies<0>();
    Products::publish_tiles();
    __syncthreads();  // the keys from k0 on have arrived, and all warps have finished with the previous keys
    if (k0 + kForwardKeys < end) load_keys(k0 + kForwardKeys, stage ^ 1);
    // One product covers the queries of Products::kWarpsTogether warps. Skips a product without queries, and a product
    // whose queries all come before these keys.
    if (together >= block.length || k0 >= together + 16 * Products::kWarpsTogether) continue;
    Accumulator<kForwardKeys> s;
    Products::multiply_transposed(s, q_tile, k_tiles + stage * kTile);
    Products::template wait<0>(s);
    softmax_block(s, scores, first_row, k0, heads.window, softmax, result);
    if constexpr (kDrops) drop(s, mask, block, head, first_row, k0);
    Products::multiply_registers(result, s, v_tiles + stage * kTile);
    Products::template wait<0>(result);
  }
  __syncthreads();  // all warps have read the queries, so results may overwrite them
  if (first_row >= block.length) return;

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    softmax.sum[half] = sum;
    const int row = first_row + half * 8 + lane / 4;
    if (log_sum_exp && lane % 4 == 0 && row < block.length) {
      log_sum_exp[static_cast<int64_t>(block.begin + row) * heads.num_heads + head] =
          (softmax.maximum[half] + log2f(sum)) * kLn2;
    }
  }
  T* const own = q_tile + warp * 16 * Rows::kStride;
  round_into_rows<Rows>(result, own,
                        [&](int half) { return (kDrops ? mask.scale<float>() : 1.0f) / softmax.sum[half]; });
  __syncwarp();
  store_rows<Rows>(own, o + static_cast<int64_t>(block.begin + first_row) * heads.channels + head * heads.head_dim,
                   heads.channels, block.length - first_row, heads.head_dim);
}

template <typename Products, bool kDrops, int kBlocks>
void launch_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  using T = typename Products::Element;
  const Heads heads = Heads::of(call.shape, call.starts);
  const unsigned blocks =
      static_cast<unsigned>(heads.num_heads) * num_blocks(call.qkv.shape[0], kTileRows, heads.num_sequences);
  auto* const kernel = attention_forward_kernel<Products, kDrops, kBlocks>;
  allow_shared(kernel, kForwardSharedBytes<Products>);
  kernel<<<blocks, kTileThreads, kForwardSharedBytes<Products>, context.stream>>>(
      data_of<T>(call.qkv), heads, Mask::of(call.dropout), 1 / std::sqrt(static_cast<float>(call.shape.head_dim)),
      data_of<T>(call.o), data_of<float>(call.log_sum_exp));
  check_launch("attention_forward_kernel");
}

}  // namespace tessera::cuda
