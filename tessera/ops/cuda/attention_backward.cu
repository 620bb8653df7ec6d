// Attention backward on tensor cores. Blocks of queries sum their own gradients over blocks of keys, and blocks of keys
// theirs over blocks of queries: scores are computed twice, but nothing is added in an order left to chance.
//   P = exp(S − log_sum_exp);  dP = d_o·vᵀ;  dS = P∘(dP − delta)/√D;  d_q = dS·k;  d_k = dSᵀ·q;  d_v = Pᵀ·d_o
#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/attention_mma.cuh"
#include "tessera/ops/cuda/attention_plain.h"

namespace tessera::cuda {
namespace {

constexpr int kRows = kMmaWarps * 16 * kM;  // queries or keys that a block owns
// Queries or keys that pass by at once. Wide heads leave registers for fewer.
template <int D>
inline constexpr int kPassing = D <= 64 ? 64 : 32;
template <int D>
inline constexpr size_t kSharedBytes = sizeof(uint16_t) * kTileStride<D>*(3 * kRows + 4 * kPassing<D>)+sizeof(float) *
                                       (4 + 4) * kPassing<D>;

template <typename T>
struct Arrays {
  const T *qkv, *o, *d_o;
  const float* log_sum_exp;  // [N, H]
  float* deltas;             // [N, num_heads] from first_head on: written by the queries' blocks, read by the keys'
  T* d_qkv;
  int first_head, num_heads;
  float scale;
};

// The tiles of a block: up to three it owns, and two pairs of passing ones, one on its way while the other is used.
template <typename T, int D>
struct Tiles {
  static constexpr int kOwn = kRows * kTileStride<D>, kPass = kPassing<D> * kTileStride<D>;
  T *own[3], *passing[2];
  float* numbers;  // [2 slots][2][kPassing]
  uint32_t* kept;  // [2 slots][kPassing/2][4]: of two queries the keys [16w, 16w + 16) that dropout keeps
  __device__ explicit Tiles(unsigned char* shared) {
    T* const base = reinterpret_cast<T*>(shared);
    own[0] = base;
    own[1] = base + kOwn;
    own[2] = base + 2 * kOwn;
    passing[0] = base + 3 * kOwn;
    passing[1] = passing[0] + 2 * kPass;
    numbers = reinterpret_cast<float*>(passing[1] + 2 * kPass);
    kept = reinterpret_cast<uint32_t*>(numbers + 4 * kPassing<D>);
  }
};

// Σ d_o∘o of the rows that this thread has elements of, from the warp's tiles.
template <typename T, int D>
__device__ inline void sum_products(const T* d_o, const T* o, float (&sums)[kM][2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = (m * 16 + half * 8 + lane / 4) * kTileStride<D> + lane % 4 * 2;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < D; n += 8) {
        const auto left = load_pack<T, 2>(d_o + at + n), right = load_pack<T, 2>(o + at + n);
        sum += left[0] * right[0] + left[1] * right[1];
      }
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sums[m][half] = sum + __shfl_xor_sync(kAllLanes, sum, 2);
    }
  }
}

template <typename T, int D, bool kDrops>
__global__ void __launch_bounds__(kMmaThreads, 2) query_gradient_kernel(Arrays<T> at, Heads heads, Mask mask) {
  constexpr int kKeys = kPassing<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  const Tiles<T, D> tiles(shared);
  const int head = at.first_head + static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const Block block = find_block(heads.starts, heads.num_sequences, kRows, static_cast<int>(blockIdx.x));
  if (!block.found) return;
  const int q0 = ((block.length - 1) / kRows - block.index) * kRows, end = min(block.length, q0 + kRows);
  const int64_t stride = 3 * heads.channels,
                in_o = static_cast<int64_t>(block.begin) * heads.channels + head * heads.head_dim;
  const T* const queries = heads.query(at.qkv, block.begin, head);
  const auto load_keys = [&](int k0, int slot) {
    load_tile<kKeys, D, kMmaThreads>(tiles.passing[0] + slot * tiles.kPass, queries + heads.key_offset, stride, k0,
                                     block.length, heads.head_dim);
    load_tile<kKeys, D, kMmaThreads>(tiles.passing[1] + slot * tiles.kPass, queries + heads.value_offset, stride, k0,
                                     block.length, heads.head_dim);
    commit_copies();
  };
  load_tile<kRows, D, kMmaThreads>(tiles.own[0], queries, stride, q0, block.length, heads.head_dim);
  load_tile<kRows, D, kMmaThreads>(tiles.own[1], at.d_o + in_o, heads.channels, q0, block.length, heads.head_dim);
  load_tile<kRows, D, kMmaThreads>(tiles.own[2], at.o + in_o, heads.channels, q0, block.length, heads.head_dim);
  load_keys(0, 0);

  const Scores scores(at.scale, heads.slope(head));
  const int first_row = q0 + warp * 16 * kM, real_rows = block.length - first_row,
            own = warp * 16 * kM * kTileStride<D>;
  T *const q = tiles.own[0] + own, *const d_o = tiles.own[1] + own;
  float log_sum_exp[kM][2], delta[kM][2];  // rows past the end get probabilities of 0
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8 + lane / 4;
      log_sum_exp[m][half] =
          row < real_rows ? at.log_sum_exp[(int64_t{block.begin} + first_row + row) * heads.num_heads + head] * kLog2E
                          : std::numeric_limits<float>::infinity();
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  sum_products<T, D>(d_o, tiles.own[2] + own, delta);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8 + lane / 4;
      if (row >= real_rows || lane % 4 != 0) continue;
      at.deltas[(int64_t{block.begin} + first_row + row) * at.num_heads + static_cast<int>(blockIdx.y)] =
          delta[m][half];
    }
  }
  Accumulator<kM, D> d_q;
  d_q.clear();
  for (int k0 = 0, slot = 0; k0 < end; k0 += kKeys, slot ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    if (k0 + kKeys < end) load_keys(k0 + kKeys, slot ^ 1);
    if (real_rows <= 0 || k0 >= first_row + 16 * kM) continue;
    const T *const k = tiles.passing[0] + slot * tiles.kPass, *const v = tiles.passing[1] + slot * tiles.kPass;
    Accumulator<kM, kKeys> s, d_p;
    s.clear();
    d_p.clear();
    multiply_transposed<kM, kKeys, D>(s, q, k);
    multiply_transposed<kM, kKeys, D>(d_p, d_o, v);
    const bool masks = k0 + kKeys - 1 > first_row;
    const float first_bias = scores.bias(k0 + lane % 4 * 2);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      uint32_t kept[2] = {};
      for (int half = 0; kDrops && half < 2; ++half) {
        const int row = min(first_row + m * 16 + half * 8 + lane / 4, block.length - 1);
        kept[half] = kept_keys<kKeys>(mask, block.begin + row, head, k0);
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = k0 + n * 8 + lane % 4 * 2 + e % 2, row = first_row + m * 16 + e / 2 * 8 + lane / 4;
          const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e % 2), first_bias);
          const float power = fmaf(s.at[m][n][e], scores.scale, bias) - log_sum_exp[m][e / 2];
          const float p = masks && key > row ? 0.0f : fast_exp2(power);
          if constexpr (kDrops) d_p.at[m][n][e] *= keeps(kept[e / 2], n, e % 2) ? mask.scale<float>() : 0.0f;
          s.at[m][n][e] = p * (d_p.at[m][n][e] - delta[m][e / 2]);
        }
      }
    }
    multiply_registers<T>(d_q, s, k);
  }
  if (real_rows <= 0) return;
  __syncwarp();
  round_into_tile(d_q, q, [&](int, int) { return at.scale; });
  __syncwarp();
  store_tile<16 * kM, D>(q, heads.query(at.d_qkv, block.begin + first_row, head), stride, real_rows, heads.head_dim);
}

// Works on Sᵀ and dPᵀ: rows are keys, columns queries, so that Pᵀ and dSᵀ are left factors as they are computed.
template <typename T, int D, bool kDrops>
__global__ void __launch_bounds__(kMmaThreads, 2) key_gradient_kernel(Arrays<T> at, Heads heads, Mask mask) {
  constexpr int kQueries = kPassing<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  const Tiles<T, D> tiles(shared);
  const int head = at.first_head + static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const Block block = find_block(heads.starts, heads.num_sequences, kRows, static_cast<int>(blockIdx.x));
  if (!block.found) return;
  const int k0 = block.index * kRows;  // the first block of a sequence is seen by most queries
  const int64_t stride = 3 * heads.channels;
  const T *const queries = heads.query(at.qkv, block.begin, head), *const d_os = at.d_o +
                                                                                 static_cast<int64_t>(block.begin) *
                                                                                     heads.channels +
                                                                                 head * heads.head_dim;
  const auto load_queries = [&](int q0, int slot) {
    load_tile<kQueries, D, kMmaThreads>(tiles.passing[0] + slot * tiles.kPass, queries, stride, q0, block.length,
                                        heads.head_dim);
    load_tile<kQueries, D, kMmaThreads>(tiles.passing[1] + slot * tiles.kPass, d_os, heads.channels, q0, block.length,
                                        heads.head_dim);
    commit_copies();
    float* const numbers = tiles.numbers + slot * 2 * kQueries;
    if (static_cast<int>(threadIdx.x) < kQueries) {
      const int query = q0 + static_cast<int>(threadIdx.x);
      const int64_t row = block.begin + query;
      const bool real = query < block.length;
      numbers[threadIdx.x] =
          real ? at.log_sum_exp[row * heads.num_heads + head] * kLog2E : std::numeric_limits<float>::infinity();
      numbers[kQueries + threadIdx.x] = real ? at.deltas[row * at.num_heads + static_cast<int>(blockIdx.y)] : 0;
    }
    // Four warps need a word each of the same counters: each computes a quarter for all of them.
    for (int pair = warp; kDrops && pair < kQueries / 2; pair += kMmaWarps) {
      const int query = min(q0 + 2 * pair + lane / 16, block.length - 1);
      const Words words = mask.words(block.begin + query, attention_dropout_column(head, k0 + lane % 16));
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) {
        const uint32_t kept = __ballot_sync(kAllLanes, words[w] >= mask.threshold);
        if (lane == 0) tiles.kept[(slot * kQueries / 2 + pair) * 4 + static_cast<int>(w)] = kept;
      }
    }
  };
  load_tile<kRows, D, kMmaThreads>(tiles.own[0], queries + heads.key_offset, stride, k0, block.length, heads.head_dim);
  load_tile<kRows, D, kMmaThreads>(tiles.own[1], queries + heads.value_offset, stride, k0, block.length,
                                   heads.head_dim);
  load_queries(k0, 0);

  const Scores scores(at.scale, heads.slope(head));
  const int first_row = k0 + warp * 16 * kM;
  T *const k = tiles.own[0] + warp * 16 * kM * kTileStride<D>, *const v =
                                                                   tiles.own[1] + warp * 16 * kM * kTileStride<D>;
  Accumulator<kM, D> d_k, d_v;
  d_k.clear();
  d_v.clear();
  for (int q0 = k0, slot = 0; q0 < block.length; q0 += kQueries, slot ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    if (q0 + kQueries < block.length) load_queries(q0 + kQueries, slot ^ 1);
    if (first_row >= block.length || q0 + kQueries <= first_row) continue;
    const T *const q = tiles.passing[0] + slot * tiles.kPass, *const d_o = tiles.passing[1] + slot * tiles.kPass;
    const float* const numbers = tiles.numbers + slot * 2 * kQueries;
    Accumulator<kM, kQueries> s, d_p;
    s.clear();
    d_p.clear();
    multiply_transposed<kM, kQueries, D>(s, k, q);
    multiply_transposed<kM, kQueries, D>(d_p, v, d_o);
    const bool masks = first_row + 16 * kM - 1 > q0;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      const auto log_sum_exps = load_pack<float, 2>(numbers + column),
                 deltas = load_pack<float, 2>(numbers + kQueries + column);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = first_row + m * 16 + e / 2 * 8 + lane / 4;
          const float power = fmaf(s.at[m][n][e], scores.scale, scores.bias(key)) - log_sum_exps.at[e % 2];
          const float p = masks && key > q0 + column + e % 2 ? 0.0f : fast_exp2(power);
          bool kept = true;
          if constexpr (kDrops) {
            const int own_key = m * 16 + e / 2 * 8 + lane / 4;  // of the warp's
            const uint32_t of_pair = tiles.kept[(slot * kQueries + column) / 2 * 4 + warp * kM + own_key / 16];
            kept = of_pair >> (e % 2 * 16 + own_key % 16) & 1;
            d_p.at[m][n][e] *= mask.scale<float>();
          }
          s.at[m][n][e] = kept ? p : 0;  // dropout's factor follows at the end
          d_p.at[m][n][e] = p * ((kept ? d_p.at[m][n][e] : 0) - deltas.at[e % 2]);
        }
      }
    }
    multiply_registers<T>(d_v, s, d_o);
    multiply_registers<T>(d_k, d_p, q);
  }
  if (first_row >= block.length) return;
  __syncwarp();
  round_into_tile(d_k, k, [&](int, int) { return at.scale; });
  round_into_tile(d_v, v, [&](int, int) { return kDrops ? mask.scale<float>() : 1.0f; });
  __syncwarp();
  T* const to = heads.query(at.d_qkv, block.begin + first_row, head);
  store_tile<16 * kM, D>(k, to + heads.key_offset, stride, block.length - first_row, heads.head_dim);
  store_tile<16 * kM, D>(v, to + heads.value_offset, stride, block.length - first_row, heads.head_dim);
}

}  // namespace

void mma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, const Dropout& dropout, View d_qkv) {
  const Heads heads = Heads::of(shape, starts);
  const Mask mask = Mask::of(dropout);
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const int together = heads_at_once(qkv.shape[0], heads.num_heads, sizeof(float));
  for (int first = 0; first < heads.num_heads; first += together) {
    const int end = std::min(heads.num_heads, first + together);
    with_mma_kernel(qkv.dtype, shape.head_dim, dropout, [&](auto zero, auto d, auto drops) {
      using T = decltype(zero);
      const dim3 grid(num_blocks(qkv.shape[0], kRows, heads.num_sequences), static_cast<unsigned>(end - first));
      const Arrays<T> at{data_of<T>(qkv),
                         data_of<T>(o),
                         data_of<T>(d_o),
                         data_of<float>(log_sum_exp),
                         context.scratch_of<float>(),
                         data_of<T>(d_qkv),
                         first,
                         end - first,
                         scale};
      allow_shared(query_gradient_kernel<T, d, drops>, kSharedBytes<d>);
      query_gradient_kernel<T, d, drops><<<grid, kMmaThreads, kSharedBytes<d>, context.stream>>>(at, heads, mask);
      check_launch("query_gradient_kernel");
      allow_shared(key_gradient_kernel<T, d, drops>, kSharedBytes<d>);
      key_gradient_kernel<T, d, drops><<<grid, kMmaThreads, kSharedBytes<d>, context.stream>>>(at, heads, mask);
      check_launch("key_gradient_kernel");
    });
  }
}

}  // namespace tessera::cuda
