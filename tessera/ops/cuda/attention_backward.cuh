// Attention backward on tensor cores. The query kernel computes the gradients of queries, as sums over blocks of keys.
// The key kernel computes the gradients of keys and values, as sums over blocks of queries. Both kernels need S and
// dP, so these are computed twice. In return, one thread block computes each gradient alone, so the order of all
// additions is fixed.
// S are the scores (attention_scores.cuh). The products ∘ are by element.
//   P = exp(S − log_sum_exp);  dP = d_o·vᵀ;  dS = P∘(dP − delta)/√D;  d_q = dS·k;  d_k = dSᵀ·q;  d_v = Pᵀ·d_o
// delta = Σ d_o∘o over a head's elements, for each query. Dropout multiplies dP, and the Pᵀ in the formula of d_v, by
// its mask. The P in the formula of dS stays without dropout. mma.cuh or wgmma.cuh computes the matrix products.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/cuda/attention.h"
#include "tessera/ops/cuda/attention_scores.cuh"
#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// The number of queries or keys that are loaded at a time. If the tiles are wider than 64 columns, a thread has too few
// registers for 64 queries or keys.
template <typename Products>
inline constexpr int kPassing = Products::Rows::kColumns <= 64 ? 64 : 32;
template <typename Products>
inline constexpr size_t kBackwardSharedBytes =
    sizeof(uint16_t) * Products::Rows::kStride*(3 * kTileRows + 4 * kPassing<Products>)+sizeof(float) *
    (4 + 4) * kPassing<Products>;

template <typename T>
struct BackwardArrays {
  const T *qkv, *o, *d_o;
  const float* log_sum_exp;  // [N, number of all query heads]
  float* deltas;             // [N, num_heads]; the query kernel writes them, and the key kernel reads them
  T* d_qkv;
  int first_head, num_heads;  // the query heads of this launch
  float scale;
};

// The arrays of a thread block in shared memory. `own` has the tiles of the thread block's own rows: q, d_o and o in
// the query kernel, k and v in the key kernel. `passing` has two tiles: k and v in the query kernel, q and d_o in the
// key kernel. A passing tile has kPassing rows, and is loaded again for each block of keys or queries. It has space for
// two stages. One stage is loaded while the thread block computes with the other stage.
template <typename Products>
struct BackwardTiles {
  using T = typename Products::Element;
  using Rows = typename Products::Rows;
  static constexpr int kOwn = kTileRows * Rows::kStride, kPass = kPassing<Products> * Rows::kStride;
  T *own[3], *passing[2];
  float* numbers;  // key kernel: log_sum_exp and delta of the passing queries, [2 stages][2][kPassing]
  // Key kernel: which keys dropout keeps, [2 stages][pairs of queries][4]. Bit 16·i + j of word w is for query i of the
  // pair and for key 16·w + j of the 64 own keys.
  uint32_t* kept;
  __device__ explicit BackwardTiles(unsigned char* shared) {
    T* const base = reinterpret_cast<T*>(shared);
    own[0] = base;
    own[1] = base + kOwn;
    own[2] = base + 2 * kOwn;
    passing[0] = base + 3 * kOwn;
    passing[1] = passing[0] + 2 * kPass;
    numbers = reinterpret_cast<float*>(passing[1] + 2 * kPass);
    kept = reinterpret_cast<uint32_t*>(numbers + 4 * kPassing<Products>);
  }
};

// Sets sums[half] to Σ d_o∘o of row 8·half + lane / 4 of the warp's 16 rows. These are the two rows whose elements the
// thread holds in an Accumulator. `d_o` and `o` point to the warp's first row in the tiles.
template <typename Rows, typename T>
__device__ inline void sum_products(const T* d_o, const T* o, float (&sums)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < Rows::kColumns; n += 8) {
      const int at = Rows::at(half * 8 + lane / 4, n + lane % 4 * 2);
      const auto left = load_pack<T, 2>(d_o + at), right = load_pack<T, 2>(o + at);
      sum += left[0] * right[0] + left[1] * right[1];
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sums[half] = sum + __shfl_xor_sync(kAllLanes, sum, 2);
  }
}

// kBlocks: the number of thread blocks that must fit on a multiprocessor at the same time. It limits the registers of a
// thread.
template <typename Products, bool kDrops, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks)
    query_gradient_kernel(BackwardArrays<typename Products::Element> at, Heads heads, Mask mask) {
  using T = typename Products::Element;
  using Rows = typename Products::Rows;
  constexpr int kKeys = kPassing<Products>;
  extern __shared__ __align__(1024) unsigned char shared_tiles[];
  const BackwardTiles<Products> tiles(shared_tiles);
  const int head_of_launch = static_cast<int>(blockIdx.x) % at.num_heads, head = at.first_head + head_of_launch,
            warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kTileRows, static_cast<int>(blockIdx.x) / at.num_heads);
  if (!block.found) return;
  const int q0 = block.index * kTileRows, end = min(block.length, q0 + kTileRows);
  const int64_t stride = heads.width, in_o = static_cast<int64_t>(block.begin) * heads.channels + head * heads.head_dim;
  const T *const keys = heads.key(at.qkv, block.begin, head / heads.group), *const values =
                                                                                heads.value(at.qkv, block.begin,
                                                                                            head / heads.group);
  const auto load_keys = [&](int k0, int stage) {
    load_tile<Rows, kKeys, kTileThreads>(tiles.passing[0] + stage * tiles.kPass, keys, stride, k0, block.length,
                                         heads.head_dim);
    load_tile<Rows, kKeys, kTileThreads>(tiles.passing[1] + stage * tiles.kPass, values, stride, k0, block.length,
                                         heads.head_dim);
    commit_copies();
  };
  const int first_block = heads.first_block(q0, kKeys);
  load_tile<Rows, kTileRows, kTileThreads>(tiles.own[0], heads.query(at.qkv, block.begin, head), stride, q0,
                                           block.length, heads.head_dim);
  load_tile<Rows, kTileRows, kTileThreads>(tiles.own[1], at.d_o + in_o, heads.channels, q0, block.length,
                                           heads.head_dim);
  load_tile<Rows, kTileRows, kTileThreads>(tiles.own[2], at.o + in_o, heads.channels, q0, block.length, heads.head_dim);
  load_keys(first_block, 0);

  const Scores scores(at.scale, heads.slope(head));
  const int first_row = q0 + warp * 16, together = q0 + first_row_together<Products>(),
            real_rows = block.length - first_row, own = warp * 16 * Rows::kStride;
  T *const q = tiles.own[0] + own, *const d_o = tiles.own[1] + own;
  float log_sum_exp[2], delta[2];  // log_sum_exp is ∞ past the sequence's end, so probabilities are 0
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = half * 8 + lane / 4;
    log_sum_exp[half] = row < real_rows
                            ? at.log_sum_exp[(int64_t{block.begin} + first_row + row) * heads.num_heads + head] * kLog2E
                            : std::numeric_limits<float>::infinity();
  }
  wait_for_copies<0>();
  __syncthreads();
  sum_products<Rows>(d_o, tiles.own[2] + own, delta);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = half * 8 + lane / 4;
    if (row >= real_rows || lane % 4 != 0) continue;
    at.deltas[(int64_t{block.begin} + first_row + row) * at.num_heads + head_of_launch] = delta[half];
  }
  Accumulator<Rows::kColumns> d_q;
  d_q.clear();
  for (int k0 = first_block, stage = 0; k0 < end; k0 += kKeys, stage ^= 1) {
    wait_for_copies<0>();
    Products::publish_tiles();
    __syncthreads();
    if (k0 + kKeys < end) load_keys(k0 + kKeys, stage ^ 1);
    if (together >= block.length || k0 >= together + 16 * Products::kWarpsTogether) continue;
    const T *const k = tiles.passing[0] + stage * tiles.kPass, *const v = tiles.passing[1] + stage * tiles.kPass;
    Accumulator<kKeys> s, d_p;
    Products::multiply_transposed(s, tiles.own[0], k);
    Products::multiply_transposed(d_p, tiles.own[1], v);
    Products::template wait<1>(s);  // the product d_p may still run while the code below computes probabilities
    const float first_bias = scores.bias(k0 + lane % 4 * 2);
    uint32_t kept[2] = {};
    for (int half = 0; kDrops && half < 2; ++half) {
      const int row = min(first_row + half * 8 + lane / 4, block.length - 1);
      kept[half] = kept_keys<kKeys>(mask, block.begin + row, head, k0);
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e % 2), first_bias);
        s.at[n][e] = fast_exp2(fmaf(s.at[n][e], scores.scale, bias) - log_sum_exp[e / 2]);
      }
    }
    if (needs_mask(first_row, k0, kKeys, heads.window)) mask_scores(s, first_row, k0, heads.window, 0);
    Products::template wait<0>(d_p);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (kDrops) d_p.at[n][e] *= keeps(kept[e / 2], n, e % 2) ? mask.scale<float>() : 0.0f;
        s.at[n][e] *= d_p.at[n][e] - delta[e / 2];
      }
    }
    Products::multiply_registers(d_q, s, k);
    Products::template wait<0>(d_q);
  }
  __syncthreads();  // all warps have read the queries, so results may overwrite them
  if (real_rows <= 0) return;
  round_into_rows<Rows>(d_q, q, [&](int) { return at.scale; });
  __syncwarp();
  store_rows<Rows>(q, heads.query(at.d_qkv, block.begin + first_row, head), stride, real_rows, heads.head_dim);
}

// Works on Sᵀ and dPᵀ: rows are keys and columns are queries. In the products d_v and d_k, Pᵀ and dSᵀ can therefore be
// left factors without a transpose. Several query heads may share one head of keys and values: adds their gradients,
// one query head after the other.
template <typename Products, bool kDrops, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks)
    key_gradient_kernel(BackwardArrays<typename Products::Element> at, Heads heads, Mask mask) {
  using T = typename Products::Element;
  using Rows = typename Products::Rows;
  constexpr int kQueries = kPassing<Products>;
  extern __shared__ __align__(1024) unsigned char shared_tiles[];
  const BackwardTiles<Products> tiles(shared_tiles);
  const int kv_heads = at.num_heads / heads.group,
            first_of_launch = static_cast<int>(blockIdx.x) % kv_heads * heads.group,
            first_head = at.first_head + first_of_launch, kv_head = first_head / heads.group,
            warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kTileRows, static_cast<int>(blockIdx.x) / kv_heads);
  if (!block.found) return;
  const int k0 =
      ((block.length - 1) / kTileRows - block.index) * kTileRows;  // blocks of early keys first: more queries see them
  const int end = heads.end_of_queries(min(k0 + kTileRows, block.length) - 1, block.length);
  const int64_t stride = heads.width;
  const auto load_queries = [&](int member, int q0, int stage) {
    const int head = first_head + member;
    const T *const queries = heads.query(at.qkv, block.begin, head), *const d_os = at.d_o +
                                                                                   static_cast<int64_t>(block.begin) *
                                                                                       heads.channels +
                                                                                   head * heads.head_dim;
    load_tile<Rows, kQueries, kTileThreads>(tiles.passing[0] + stage * tiles.kPass, queries, stride, q0, block.length,
                                            heads.head_dim);
    load_tile<Rows, kQueries, kTileThreads>(tiles.passing[1] + stage * tiles.kPass, d_os, heads.channels, q0,
                                            block.length, heads.head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kQueries; i += kTileThreads) {
      const int query = q0 + i % kQueries;
      const bool real = query < block.length;
      const int64_t row = real ? block.begin + query : block.begin;
      copy_word_async(tiles.numbers + stage * 2 * kQueries + i,
                      i < kQueries ? at.log_sum_exp + row * heads.num_heads + head
                                   : at.deltas + row * at.num_heads + first_of_launch + member,
                      real);
    }
    commit_copies();
    // Each Philox counter gives four random words: word w is for one of the 16 keys of warp w. Each warp therefore
    // computes the counters of only a quarter of the query pairs, and stores the bits for all four warps.
    for (int pair = warp; kDrops && pair < kQueries / 2; pair += kTileWarps) {
      const int query = min(q0 + 2 * pair + lane / 16, block.length - 1);
      const Words words = mask.words(block.begin + query, attention_dropout_column(head, k0 + lane % 16));
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) {
        const uint32_t kept = __ballot_sync(kAllLanes, words[w] >= mask.threshold);
        if (lane == 0) tiles.kept[(stage * kQueries / 2 + pair) * 4 + static_cast<int>(w)] = kept;
      }
    }
  };
  load_tile<Rows, kTileRows, kTileThreads>(tiles.own[0], heads.key(at.qkv, block.begin, kv_head), stride, k0,
                                           block.length, heads.head_dim);
  load_tile<Rows, kTileRows, kTileThreads>(tiles.own[1], heads.value(at.qkv, block.begin, kv_head), stride, k0,
                                           block.length, heads.head_dim);
  load_queries(0, k0, 0);

  const int first_row = k0 + warp * 16, together = k0 + first_row_together<Products>();
  T *const k = tiles.own[0] + warp * 16 * Rows::kStride, *const v = tiles.own[1] + warp * 16 * Rows::kStride;
  Accumulator<Rows::kColumns> d_k, d_v;
  d_k.clear();
  d_v.clear();
  for (int member = 0, next = k0, stage = 0; member < heads.group; stage ^= 1) {
    wait_for_copies<0>();
    Products::publish_tiles();
    __syncthreads();
    const int q0 = next, head = first_head + member;
    next += kQueries;
    if (next >= end) {  // the next query head
      next = k0;
      ++member;
    }
    if (member < heads.group) load_queries(member, next, stage ^ 1);
    if (together >= block.length || q0 + kQueries <= together) continue;
    const T *const q = tiles.passing[0] + stage * tiles.kPass, *const d_o = tiles.passing[1] + stage * tiles.kPass;
    const float* const numbers = tiles.numbers + stage * 2 * kQueries;
    const Scores scores(at.scale, heads.slope(head));
    const float biases[2] = {scores.bias(first_row + lane / 4), scores.bias(first_row + 8 + lane / 4)};
    Accumulator<kQueries> s, d_p;
    Products::multiply_transposed(s, tiles.own[0], q);
    Products::multiply_transposed(d_p, tiles.own[1], d_o);
    Products::template wait<1>(s);  // the product d_p may still run while the code below computes probabilities
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      const auto log_sum_exps = load_pack<float, 2>(numbers + column);
      const uint32_t kept = kDrops ? tiles.kept[(stage * kQueries + column) / 2 * 4 + warp] : 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s.at[n][e] = fast_exp2(fmaf(log_sum_exps.at[e % 2], -kLog2E, fmaf(s.at[n][e], scores.scale, biases[e / 2])));
        // A negative value marks a dropped probability.
        if (kDrops && !(kept >> (e % 2 * 16 + e / 2 * 8 + lane / 4) & 1)) s.at[n][e] = -s.at[n][e];
      }
    }
    if (first_row + 16 - 1 > q0 || q0 + kQueries > block.length || q0 + kQueries - first_row > heads.window) {
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int query = q0 + n * 8 + lane % 4 * 2 + e % 2;
          const int ahead = query - (first_row + e / 2 * 8 + lane / 4);
          if (ahead < 0 || ahead >= heads.window || query >= block.length) s.at[n][e] = 0;
        }
      }
    }
    // At the end, d_v is multiplied by dropout's factor 1 / (1 − rate).
    Products::multiply_registers(d_v, s, d_o, [](float p) { return kDrops && p < 0 ? 0 : p; });
    Products::template wait<1>(d_p);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const auto deltas = load_pack<float, 2>(numbers + kQueries + n * 8 + lane % 4 * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float p = s.at[n][e];
        if constexpr (kDrops) d_p.at[n][e] = p > 0 ? d_p.at[n][e] * mask.scale<float>() : 0;
        d_p.at[n][e] = fabsf(p) * (d_p.at[n][e] - deltas.at[e % 2]);
      }
    }
    Products::multiply_registers(d_k, d_p, q);
    Products::template wait<0>(d_v, d_k);
  }
  __syncthreads();  // all warps have read the keys and values, so results may overwrite them
  if (first_row >= block.length) return;
  round_into_rows<Rows>(d_k, k, [&](int) { return at.scale; });
  round_into_rows<Rows>(d_v, v, [&](int) { return kDrops ? mask.scale<float>() : 1.0f; });
  __syncwarp();
  const int64_t row = block.begin + first_row;
  store_rows<Rows>(k, heads.key(at.d_qkv, row, kv_head), stride, block.length - first_row, heads.head_dim);
  store_rows<Rows>(v, heads.value(at.d_qkv, row, kv_head), stride, block.length - first_row, heads.head_dim);
}

template <typename Products, bool kDrops, int kQueryBlocks, int kKeyBlocks>
void launch_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  using T = typename Products::Element;
  const Heads heads = Heads::of(call.shape, call.starts);
  const Mask mask = Mask::of(call.dropout);
  const float scale = 1 / std::sqrt(static_cast<float>(call.shape.head_dim));
  auto* const queries_kernel = query_gradient_kernel<Products, kDrops, kQueryBlocks>;
  auto* const keys_kernel = key_gradient_kernel<Products, kDrops, kKeyBlocks>;
  constexpr size_t kShared = kBackwardSharedBytes<Products>;
  allow_shared(queries_kernel, kShared);
  allow_shared(keys_kernel, kShared);
  const int together = heads_at_once(call.qkv.shape[0], heads.num_heads, heads.group, sizeof(float));
  for (int first = 0; first < heads.num_heads; first += together) {
    const int end = std::min(heads.num_heads, first + together);
    const unsigned blocks_of_head = num_blocks(call.qkv.shape[0], kTileRows, heads.num_sequences),
                   blocks = static_cast<unsigned>(end - first) * blocks_of_head;
    const BackwardArrays<T> at{data_of<T>(call.qkv),
                               data_of<T>(call.o),
                               data_of<T>(call.d_o),
                               data_of<float>(call.log_sum_exp),
                               context.scratch_of<float>(),
                               data_of<T>(call.d_qkv),
                               first,
                               end - first,
                               scale};
    queries_kernel<<<blocks, kTileThreads, kShared, context.stream>>>(at, heads, mask);
    check_launch("attention query_gradient_kernel");
    keys_kernel<<<blocks / static_cast<unsigned>(heads.group), kTileThreads, kShared, context.stream>>>(at, heads,
                                                                                                        mask);
    check_launch("attention key_gradient_kernel");
  }
}

}  // namespace tessera::cuda
