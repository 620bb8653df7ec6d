#include "tessera/ops/cuda/attention.h"

#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/attention_shapes.cuh"

namespace tessera::cuda {
namespace {

// A thread block owns 64 queries and loads keys, kPassing at a time. In key_gradient_kernel, a thread block owns 64
// keys and loads queries. In the matrix of scores, each owned query or key is a row, and each loaded key or query is a
// column. The threads of the block form 8 groups of 16. A group computes every eighth row of the scores, and a thread
// of the group computes every sixteenth column of these rows. A warp consists of two groups. No other warp accesses the
// scores of these two groups, so the warp can share them without a barrier of the thread block.
constexpr int kColumns = 16, kGroups = 8, kThreads = kGroups * kColumns;
constexpr int kRows = 64, kOwn = kRows / kGroups;  // rows of a thread block, rows of a thread

// kPassing: the number of queries or keys that are loaded at a time. kScores: the number of scores that a thread
// computes in each of its rows.
template <int D>
inline constexpr int kPassing = D <= 64 ? 64 : 32;
template <int D>
inline constexpr int kScores = kPassing<D> / kColumns;
// The distance between neighbouring rows of a tile in shared memory, in elements. It is four more than the number of
// elements in a row, so that neighbouring rows start in different banks.
template <int D>
inline constexpr int kStride = D + 4;
template <int D>
inline constexpr int kScoreStride = kPassing<D> + 4;
// The number of elements that a thread computes in each of its rows of a result. These elements form parts of four
// neighbours. first_elem(part) returns the first element of a part.
template <int D>
inline constexpr int kElems = D / kColumns;

__device__ inline int column() {
  return static_cast<int>(threadIdx.x) % kColumns;
}
__device__ inline int group() {
  return static_cast<int>(threadIdx.x) / kColumns;
}
__device__ inline int first_elem(int part) {
  return (part * kColumns + column()) * 4;
}

// Loads kCount rows of a sequence, from row `first` on. Elements past the end of the sequence or of the head become 0.
template <int D, int kCount>
__device__ inline void load_rows(const float* from, int64_t stride, int first, int length, int head_dim, float* tile) {
  if (head_dim % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount * D / 4 / kThreads; ++i) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / (D / 4), d = at % (D / 4) * 4;
      Pack<float, 4> values{};
      if (first + row < length && d < head_dim) values = load_pack<float, 4>(from + (first + row) * stride + d);
      store_pack(tile + row * kStride<D> + d, values);
    }
  } else {
    for (int at = static_cast<int>(threadIdx.x); at < kCount * D; at += kThreads) {
      const int row = at / D, d = at % D;
      const bool real = first + row < length && d < head_dim;
      tile[row * kStride<D> + d] = real ? from[(first + row) * stride + d] : 0.0f;
    }
  }
}

// products[i][j] = a[row i of this thread]·b[column j of this thread]. The dot product covers all elements of the head.
template <int D, int J>
__device__ inline void multiply_transposed(const float* a, const float* b, float (&products)[kOwn][J]) {
  const float *const rows = a + group() * kStride<D>, *const columns = b + column() * kStride<D>;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < J; ++j) products[i][j] = 0;
  }
#pragma unroll 2
  for (int d = 0; d < D; d += 4) {
    Pack<float, 4> right[J];
#pragma unroll
    for (int j = 0; j < J; ++j) right[j] = load_pack<float, 4>(columns + j * kColumns * kStride<D> + d);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const auto left = load_pack<float, 4>(rows + i * kGroups * kStride<D> + d);
#pragma unroll
      for (int j = 0; j < J; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) products[i][j] = fmaf(left.at[e], right[j].at[e], products[i][j]);
      }
    }
  }
}

// Stores the group's rows of probabilities, or of gradients of scores, in shared memory. All threads of the group can
// then read them.
template <int D>
__device__ inline void share_scores(const float (&scores)[kOwn][kScores<D>], float* tile) {
  __syncwarp();  // all threads of the warp have read the previous scores
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kScores<D>; ++j) {
      tile[(group() + i * kGroups) * kScoreStride<D> + column() + j * kColumns] = scores[i][j];
    }
  }
  __syncwarp();
}

// sums[i] += Σ_k scores[row i of this thread][k] · b[k], for the thread's elements of a head.
template <int D>
__device__ inline void add_products(const float* scores, const float* b, float (&sums)[kOwn][kElems<D>]) {
  const float* const rows = scores + group() * kScoreStride<D>;
#pragma unroll 1
  for (int k = 0; k < kPassing<D>; k += 4) {
    float right[4][kElems<D>];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int part = 0; part < kElems<D> / 4; ++part) {
        const auto pack = load_pack<float, 4>(b + (k + r) * kStride<D> + first_elem(part));
#pragma unroll
        for (int e = 0; e < 4; ++e) right[r][part * 4 + e] = pack.at[e];
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const auto left = load_pack<float, 4>(rows + i * kGroups * kScoreStride<D> + k);
#pragma unroll
      for (int e = 0; e < kElems<D>; ++e) {
#pragma unroll
        for (int r = 0; r < 4; ++r) sums[i][e] = fmaf(left.at[r], right[r][e], sums[i][e]);
      }
    }
  }
}

template <int D>
__device__ inline void store_row(const float (&values)[kElems<D>], float factor, int head_dim, float* to) {
#pragma unroll
  for (int part = 0; part < kElems<D> / 4; ++part) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int d = first_elem(part) + e;
      if (d < head_dim) to[d] = values[part * 4 + e] * factor;
    }
  }
}

// Computes dropout's factors for the probabilities that this thread has in a row. The keys of these probabilities are
// 16 apart, so the factors come from different words of one Philox counter (ops/dropout_mask.h).
template <int J>
__device__ inline void drop_row(const Mask& mask, int64_t row, int head, int k0, float (&factors)[J]) {
  const Words words = mask.words(row, attention_dropout_column(head, k0 / 64 * 64 + column()));
#pragma unroll
  for (int j = 0; j < J; ++j) {
    factors[j] = words[static_cast<uint32_t>(k0 % 64 / kColumns + j)] >= mask.threshold ? mask.scale<float>() : 0.0f;
  }
}

constexpr float kHidden = -std::numeric_limits<float>::infinity();  // the score of a key that a query does not see

// o = dropout(softmax(q·kᵀ/√head_dim + slope·(position of the key)))·v for 64 queries. The softmax uses a running
// maximum.
template <int D>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 3 : 2)
    forward_kernel(const float* __restrict__ qkv, Heads heads, Mask mask, float scale, float* __restrict__ o,
                   float* __restrict__ log_sum_exp) {
  constexpr int J = kScores<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  float *const q = reinterpret_cast<float*>(shared), *const k = q + kRows * kStride<D>,
               *const v = k + kPassing<D> * kStride<D>, *const p = v + kPassing<D> * kStride<D>;
  const int head = static_cast<int>(blockIdx.x) % heads.num_heads, head_dim = heads.head_dim;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kRows, static_cast<int>(blockIdx.x) / heads.num_heads);
  if (!block.found) return;
  const int q0 = block.index * kRows, end = min(block.length, q0 + kRows);
  const int64_t stride = heads.width;
  const float *const keys = heads.key(qkv, block.begin, head / heads.group), *const values = heads.value(
                                                                                 qkv, block.begin, head / heads.group);
  load_rows<D, kRows>(heads.query(qkv, block.begin, head), stride, q0, block.length, head_dim, q);
  const float slope = heads.slope(head);
  float maximum[kOwn], sum[kOwn], result[kOwn][kElems<D>] = {};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    maximum[i] = kHidden;
    sum[i] = 0;
  }
  for (int k0 = heads.first_block(q0, kPassing<D>); k0 < end; k0 += kPassing<D>) {
    __syncthreads();
    load_rows<D, kPassing<D>>(keys, stride, k0, block.length, head_dim, k);
    load_rows<D, kPassing<D>>(values, stride, k0, block.length, head_dim, v);
    __syncthreads();
    float s[kOwn][J];
    multiply_transposed<D>(q, k, s);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int query = q0 + group() + i * kGroups;
      float most = maximum[i];
#pragma unroll
      for (int j = 0; j < J; ++j) {
        const int key = k0 + column() + j * kColumns;
        const bool seen = key <= query && key >= heads.first_key(query);
        s[i][j] = seen ? s[i][j] * scale + slope * static_cast<float>(key) : kHidden;
        most = fmaxf(most, s[i][j]);
      }
#pragma unroll
      for (int offset = kColumns / 2; offset > 0; offset /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
      }
      // With a window, a query may see none of the keys that are loaded first. The maximum of its scores is then −∞,
      // and −∞ − (−∞) would be NaN.
      const float origin = most == kHidden ? 0.0f : most;
      const float correction = expf(maximum[i] - origin);
      maximum[i] = most;
      sum[i] *= correction;
#pragma unroll
      for (int j = 0; j < J; ++j) {
        s[i][j] = expf(s[i][j] - origin);
        sum[i] += s[i][j];
      }
#pragma unroll
      for (int e = 0; e < kElems<D>; ++e) result[i][e] *= correction;
      if (mask.row_ids && query < block.length) {
        float factors[J];
        drop_row(mask, block.begin + query, head, k0, factors);
#pragma unroll
        for (int j = 0; j < J; ++j) s[i][j] *= factors[j];
      }
    }
    share_scores<D>(s, p);
    add_products<D>(p, v, result);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int query = q0 + group() + i * kGroups;
#pragma unroll
    for (int offset = kColumns / 2; offset > 0; offset /= 2) {
      sum[i] += __shfl_xor_sync(kAllLanes, sum[i], offset);
    }
    if (query >= block.length) continue;
    const int64_t row = block.begin + query;
    store_row<D>(result[i], 1.0f / sum[i], head_dim, o + row * heads.channels + head * head_dim);
    if (log_sum_exp && column() == 0) log_sum_exp[row * heads.num_heads + head] = maximum[i] + logf(sum[i]);
  }
}

// Arguments of the two backward kernels. A launch computes num_heads query heads, from first_head on. `deltas` [N,
// num_heads] has only these heads.
struct Backward {
  const float *qkv, *d_o, *log_sum_exp, *deltas;
  float* d_qkv;
  int first_head, num_heads;
  float scale;
};

// dS = P∘(dropout(dP) − delta)/√head_dim;  d_q = dS·k. Here P = exp(S − log_sum_exp) for the scores S, dP = d_o·vᵀ, and
// delta comes from attention_deltas().
template <int D>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 2 : 1)
    query_gradient_kernel(Backward at, Heads heads, Mask mask) {
  constexpr int J = kScores<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  float *const q = reinterpret_cast<float*>(shared), *const d_o = q + kRows * kStride<D>,
               *const k = d_o + kRows * kStride<D>, *const v = k + kPassing<D> * kStride<D>,
               *const tile = v + kPassing<D> * kStride<D>;
  const int head_of_launch = static_cast<int>(blockIdx.x) % at.num_heads, head = at.first_head + head_of_launch,
            head_dim = heads.head_dim;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kRows, static_cast<int>(blockIdx.x) / at.num_heads);
  if (!block.found) return;
  const int q0 = block.index * kRows, end = min(block.length, q0 + kRows);
  const int64_t stride = heads.width;
  const float *const keys = heads.key(at.qkv, block.begin, head / heads.group), *const values =
                                                                                    heads.value(at.qkv, block.begin,
                                                                                                head / heads.group);
  load_rows<D, kRows>(heads.query(at.qkv, block.begin, head), stride, q0, block.length, head_dim, q);
  load_rows<D, kRows>(at.d_o + static_cast<int64_t>(block.begin) * heads.channels + head * head_dim, heads.channels, q0,
                      block.length, head_dim, d_o);
  const float slope = heads.slope(head);
  // log_sum_exp is ∞ for rows past the end of the sequence, so their probabilities are 0.
  float log_sum_exp[kOwn], delta[kOwn], result[kOwn][kElems<D>] = {};
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int query = q0 + group() + i * kGroups;
    const int64_t row = block.begin + query;
    const bool real = query < block.length;
    log_sum_exp[i] = real ? at.log_sum_exp[row * heads.num_heads + head] : std::numeric_limits<float>::infinity();
    delta[i] = real ? at.deltas[row * at.num_heads + head_of_launch] : 0;
  }
  for (int k0 = heads.first_block(q0, kPassing<D>); k0 < end; k0 += kPassing<D>) {
    __syncthreads();
    load_rows<D, kPassing<D>>(keys, stride, k0, block.length, head_dim, k);
    load_rows<D, kPassing<D>>(values, stride, k0, block.length, head_dim, v);
    __syncthreads();
    float s[kOwn][J], d_p[kOwn][J];
    multiply_transposed<D>(q, k, s);
    multiply_transposed<D>(d_o, v, d_p);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int query = q0 + group() + i * kGroups;
      if (mask.row_ids && query < block.length) {
        float factors[J];
        drop_row(mask, block.begin + query, head, k0, factors);
#pragma unroll
        for (int j = 0; j < J; ++j) d_p[i][j] *= factors[j];
      }
#pragma unroll
      for (int j = 0; j < J; ++j) {
        const int key = k0 + column() + j * kColumns;
        const bool seen = key <= query && key >= heads.first_key(query);
        const float p = seen ? expf(s[i][j] * at.scale + slope * static_cast<float>(key) - log_sum_exp[i]) : 0.0f;
        s[i][j] = p * (d_p[i][j] - delta[i]) * at.scale;
      }
    }
    share_scores<D>(s, tile);
    add_products<D>(tile, k, result);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int query = q0 + group() + i * kGroups;
    if (query < block.length) store_row<D>(result[i], 1.0f, head_dim, heads.query(at.d_qkv, block.begin + query, head));
  }
}

// d_k = dSᵀ·q;  d_v = dropout(P)ᵀ·d_o. Works on Sᵀ and dPᵀ: rows are keys and columns are queries. Processes all query
// heads that share one head of keys and values, one after the other, and sums their gradients.
template <int D>
__global__ void __launch_bounds__(kThreads, D <= 64 ? 2 : 1) key_gradient_kernel(Backward at, Heads heads, Mask mask) {
  constexpr int J = kScores<D>;
  extern __shared__ __align__(16) unsigned char shared[];
  float *const k = reinterpret_cast<float*>(shared), *const v = k + kRows * kStride<D>,
               *const q = v + kRows * kStride<D>, *const d_o = q + kPassing<D> * kStride<D>,
               *const tile = d_o + kPassing<D> * kStride<D>;
  const int kv_heads = at.num_heads / heads.group,
            first_of_launch = static_cast<int>(blockIdx.x) % kv_heads * heads.group,
            kv_head = (at.first_head + first_of_launch) / heads.group, head_dim = heads.head_dim;
  const RowBlock block =
      find_longest_block(heads.starts, heads.num_sequences, kRows, static_cast<int>(blockIdx.x) / kv_heads);
  if (!block.found) return;
  const int k0 = ((block.length - 1) / kRows - block.index) * kRows;  // early keys first: more queries see them
  const int64_t stride = heads.width;
  const int end = heads.end_of_queries(min(k0 + kRows, block.length) - 1, block.length);
  load_rows<D, kRows>(heads.key(at.qkv, block.begin, kv_head), stride, k0, block.length, head_dim, k);
  load_rows<D, kRows>(heads.value(at.qkv, block.begin, kv_head), stride, k0, block.length, head_dim, v);
  float d_k[kOwn][kElems<D>] = {}, d_v[kOwn][kElems<D>] = {};
  for (int member = 0, q0 = k0; member < heads.group;) {
    const int of_launch = first_of_launch + member, head = at.first_head + of_launch;
    const float slope = heads.slope(head);
    __syncthreads();
    load_rows<D, kPassing<D>>(heads.query(at.qkv, block.begin, head), stride, q0, block.length, head_dim, q);
    load_rows<D, kPassing<D>>(at.d_o + static_cast<int64_t>(block.begin) * heads.channels + head * head_dim,
                              heads.channels, q0, block.length, head_dim, d_o);
    __syncthreads();
    float s[kOwn][J], d_p[kOwn][J];
    multiply_transposed<D>(k, q, s);
    multiply_transposed<D>(v, d_o, d_p);
#pragma unroll
    for (int j = 0; j < J; ++j) {
      const int query = q0 + column() + j * kColumns;
      const int64_t row = block.begin + query;
      const bool real = query < block.length;
      const float log_sum_exp =
                      real ? at.log_sum_exp[row * heads.num_heads + head] : std::numeric_limits<float>::infinity(),
                  delta = real ? at.deltas[row * at.num_heads + of_launch] : 0;
      // The thread's keys k0 + group() + 8·i use the words of two Philox counters: the keys with even i use the first
      // counter, and the keys with odd i use the second.
      Words words[2] = {};
      if (mask.row_ids && real) {
        words[0] = mask.words(row, attention_dropout_column(head, k0 + group()));
        words[1] = mask.words(row, attention_dropout_column(head, k0 + group() + kGroups));
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int key = k0 + group() + i * kGroups;
        const float factor = !mask.row_ids                                                  ? 1.0f
                             : words[i % 2][static_cast<uint32_t>(i / 2)] >= mask.threshold ? mask.scale<float>()
                                                                                            : 0.0f;
        const bool seen = key <= query && key >= heads.first_key(query);
        const float p = seen ? expf(s[i][j] * at.scale + slope * static_cast<float>(key) - log_sum_exp) : 0.0f;
        d_p[i][j] = p * (factor * d_p[i][j] - delta) * at.scale;
        s[i][j] = p * factor;
      }
    }
    share_scores<D>(s, tile);
    add_products<D>(tile, d_o, d_v);
    share_scores<D>(d_p, tile);
    add_products<D>(tile, q, d_k);
    q0 += kPassing<D>;
    if (q0 >= end) {  // the next query head
      q0 = k0;
      ++member;
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int key = k0 + group() + i * kGroups;
    if (key >= block.length) continue;
    store_row<D>(d_k[i], 1.0f, head_dim, heads.key(at.d_qkv, block.begin + key, kv_head));
    store_row<D>(d_v[i], 1.0f, head_dim, heads.value(at.d_qkv, block.begin + key, kv_head));
  }
}

// The bytes of shared memory of a thread block that has `own_tiles` tiles of owned rows, two tiles of rows that are
// loaded kPassing at a time, and one tile of scores.
template <int D>
constexpr size_t shared_bytes(int own_tiles) {
  const int own = own_tiles * kRows * kStride<D>, passing = 2 * kPassing<D> * kStride<D>;
  return sizeof(float) * static_cast<size_t>(own + passing + kRows * kScoreStride<D>);
}

// Calls body(D) with the smallest tile width that holds a head.
template <typename Body>
void with_tiled_kernel(int64_t head_dim, Body&& body) {
  if (head_dim <= 64) return body(std::integral_constant<int, 64>());
  body(std::integral_constant<int, 128>());
}

}  // namespace

// For heads of more than 64 elements, a thread block of the backward kernels needs 108 KiB of shared memory. sm_80 and
// sm_90 allow this; sm_86 and sm_89 do not.
bool tiled_attention_can(const Context& context, View qkv, const AttentionShape& shape) {
  if (qkv.dtype != DType::f32 || shape.head_dim > 128) return false;
  const size_t bytes = shape.head_dim <= 64 ? shared_bytes<64>(2) : shared_bytes<128>(2);
  return bytes <= static_cast<size_t>(context.max_shared_bytes);
}

void tiled_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  const Heads heads = Heads::of(call.shape, call.starts);
  const float scale = 1 / std::sqrt(static_cast<float>(call.shape.head_dim));
  const unsigned blocks =
      static_cast<unsigned>(heads.num_heads) * num_blocks(call.qkv.shape[0], kRows, heads.num_sequences);
  with_tiled_kernel(call.shape.head_dim, [&](auto d) {
    allow_shared(forward_kernel<d>, shared_bytes<d>(1));
    forward_kernel<d><<<blocks, kThreads, shared_bytes<d>(1), context.stream>>>(
        data_of<float>(call.qkv), heads, Mask::of(call.dropout), scale, data_of<float>(call.o),
        data_of<float>(call.log_sum_exp));
  });
  check_launch("tiled attention forward_kernel");
}

void tiled_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  const Heads heads = Heads::of(call.shape, call.starts);
  const Mask mask = Mask::of(call.dropout);
  const float scale = 1 / std::sqrt(static_cast<float>(call.shape.head_dim));
  const int together = heads_at_once(call.qkv.shape[0], heads.num_heads, heads.group, sizeof(float));
  for (int first = 0; first < heads.num_heads; first += together) {
    const int end = std::min(heads.num_heads, first + together);
    attention_deltas(context, call.o, call.d_o, call.shape, first, end);
    const unsigned blocks =
        static_cast<unsigned>(end - first) * num_blocks(call.qkv.shape[0], kRows, heads.num_sequences);
    with_tiled_kernel(call.shape.head_dim, [&](auto d) {
      const Backward at{data_of<float>(call.qkv),
                        data_of<float>(call.d_o),
                        data_of<float>(call.log_sum_exp),
                        context.scratch_of<float>(),
                        data_of<float>(call.d_qkv),
                        first,
                        end - first,
                        scale};
      allow_shared(query_gradient_kernel<d>, shared_bytes<d>(2));
      query_gradient_kernel<d><<<blocks, kThreads, shared_bytes<d>(2), context.stream>>>(at, heads, mask);
      check_launch("tiled attention query_gradient_kernel");
      allow_shared(key_gradient_kernel<d>, shared_bytes<d>(2));
      key_gradient_kernel<d>
          <<<blocks / static_cast<unsigned>(heads.group), kThreads, shared_bytes<d>(2), context.stream>>>(at, heads,
                                                                                                          mask);
      check_launch("tiled attention key_gradient_kernel");
    });
  }
}

}  // namespace tessera::cuda
