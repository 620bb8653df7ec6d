#include "tessera/ops/cuda/attention.h"

#include <algorithm>
#include <limits>

#include "tessera/ops/cuda/attention_shapes.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 4;                          // per thread block; each warp handles a query or a key
constexpr int kLanesOfHead = kMaxHeadDim / kWarp;  // elements of a head per lane, at most

template <typename A>
__device__ inline A lowest() {
  return -std::numeric_limits<A>::infinity();
}

// a·b over a head, computed by one lane, N neighbouring elements at a time.
template <int N, typename T, typename A>
__device__ inline A dot(const A* a, const T* b, int count) {
  A sum = 0;
  for (int d = 0; d < count; d += N) {
    const auto pack = load_pack<T, N>(b + d);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += a[d + j] * pack[j];
  }
  return sum;
}

// sums[i] += Σ_j (weight of lane j) · row(j)[element lane + 32·i], over all lanes j < count. row(j) is the row that
// belongs to lane j, and `lane` is the lane of this thread. Elements past the end of the head are skipped.
template <typename T, typename A, typename Row>
__device__ inline void add_rows(A weight, int count, int head_dim, const Row& row, A (&sums)[kLanesOfHead]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int j = 0; j < count; ++j) {
    const A factor = __shfl_sync(kAllLanes, weight, j);
    const T* const from = row(j);
#pragma unroll
    for (int i = 0; i < kLanesOfHead; ++i) {
      if (i * kWarp < head_dim && lane + i * kWarp < head_dim) sums[i] += factor * to_acc(from[lane + i * kWarp]);
    }
  }
}

template <typename T, typename A>
__device__ inline void store_head(const A (&values)[kLanesOfHead], A factor, int head_dim, T* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kLanesOfHead; ++i) {
    if (lane + i * kWarp < head_dim) to[lane + i * kWarp] = from_acc<T>(values[i] * factor);
  }
}

// Loads one row's elements of a head into shared memory, and converts them to the type of arithmetic.
template <typename T, typename A>
__device__ inline void stage_head(const T* from, int head_dim, A* to) {
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < head_dim; d += kWarp) to[d] = to_acc(from[d]);
}

// o = dropout(softmax(q·kᵀ/√D + slope·position of the key))·v. A warp computes one query. It processes 32 keys at a
// time, one key per lane, and keeps a running maximum of the scores.
template <typename T, int N>
__global__ void __launch_bounds__(kWarps* kWarp)
    forward_kernel(const T* __restrict__ qkv, Heads heads, Mask mask, Acc<T> scale, T* __restrict__ o,
                   Acc<T>* __restrict__ log_sum_exp) {
  using A = Acc<T>;
  __shared__ A shared[kWarps][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head = static_cast<int>(blockIdx.y), head_dim = heads.head_dim;
  const RowBlock block = find_block(heads.starts, heads.num_sequences, kWarps, static_cast<int>(blockIdx.x));
  const int query = block.index * kWarps + warp;
  if (!block.found || query >= block.length) return;  // all lanes of the warp return; no block barrier follows
  const int64_t row = block.begin + query;
  A* const q = shared[warp];
  stage_head(heads.query(qkv, row, head), head_dim, q);
  __syncwarp();
  const A slope = static_cast<A>(heads.slope(head));
  const T *const keys = heads.key(qkv, block.begin, head / heads.group), *const values = heads.value(
                                                                             qkv, block.begin, head / heads.group);
  A maximum = lowest<A>(), sum = 0, result[kLanesOfHead] = {};
  for (int k0 = max(0, heads.first_key(query)); k0 <= query; k0 += kWarp) {
    const int key = k0 + lane;
    A score = lowest<A>();
    if (key <= query) {
      score = dot<N>(q, keys + static_cast<int64_t>(key) * heads.width, head_dim) * scale + slope * static_cast<A>(key);
    }
    const A most = max(maximum, warp_reduce(score, Max()));
    A p = exp(score - most);
    const A correction = exp(maximum - most);  // 0 in the first iteration: `maximum` is −∞
    sum = sum * correction + warp_reduce(p, Sum());
    maximum = most;
#pragma unroll
    for (int i = 0; i < kLanesOfHead; ++i) result[i] *= correction;
    if (mask.row_ids && key <= query) p *= mask.factor<A>(row, attention_dropout_column(head, key));
    add_rows<T>(
        p, min(kWarp, query + 1 - k0), head_dim,
        [&](int j) { return values + static_cast<int64_t>(k0 + j) * heads.width; }, result);
  }
  store_head(result, A(1) / sum, head_dim, o + row * heads.channels + head * head_dim);
  if (log_sum_exp && lane == 0) log_sum_exp[row * heads.num_heads + head] = maximum + log(sum);
}

// deltas[row, head] = the sum of d_o∘o over the elements of the head. One warp per row and head.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarp)
    delta_kernel(const T* __restrict__ o, const T* __restrict__ d_o, int64_t channels, int head_dim, int first_head,
                 int num_heads, int64_t count, Acc<T>* __restrict__ deltas) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (index >= count) return;
  const int64_t at = index / num_heads * channels + (first_head + index % num_heads) * head_dim;
  Acc<T> sum = 0;
  for (int d = lane; d < head_dim; d += kWarp) sum += to_acc(o[at + d]) * to_acc(d_o[at + d]);
  sum = warp_reduce(sum, Sum());
  if (lane == 0) deltas[index] = sum;
}

// Arrays of the two backward kernels. A launch computes num_heads query heads, from first_head on. `deltas` [N,
// num_heads] has only these heads.
template <typename T>
struct Backward {
  const T *qkv, *d_o;
  const Acc<T>*log_sum_exp, *deltas;
  T* d_qkv;
  int first_head, num_heads;
  Acc<T> scale;
};

// dS = P∘(dropout(dP) − delta)/√D with P = exp(S − log_sum_exp) for the scores S, and dP = d_o·vᵀ;  d_q = dS·k.
template <typename T, int N>
__global__ void __launch_bounds__(kWarps* kWarp) query_gradient_kernel(Backward<T> at, Heads heads, Mask mask) {
  using A = Acc<T>;
  __shared__ A shared[2][kWarps][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head = at.first_head + static_cast<int>(blockIdx.y), head_dim = heads.head_dim;
  const RowBlock block = find_block(heads.starts, heads.num_sequences, kWarps, static_cast<int>(blockIdx.x));
  const int query = block.index * kWarps + warp;
  if (!block.found || query >= block.length) return;
  const int64_t row = block.begin + query, stride = heads.width;
  A *const q = shared[0][warp], *const d_o = shared[1][warp];
  stage_head(heads.query(at.qkv, row, head), head_dim, q);
  stage_head(at.d_o + row * heads.channels + head * head_dim, head_dim, d_o);
  __syncwarp();
  const A slope = static_cast<A>(heads.slope(head)), log_sum_exp = at.log_sum_exp[row * heads.num_heads + head],
          delta = at.deltas[row * at.num_heads + static_cast<int>(blockIdx.y)];
  const T *const keys = heads.key(at.qkv, block.begin, head / heads.group), *const values =
                                                                                heads.value(at.qkv, block.begin,
                                                                                            head / heads.group);
  A result[kLanesOfHead] = {};
  for (int k0 = max(0, heads.first_key(query)); k0 <= query; k0 += kWarp) {
    const int key = k0 + lane;
    A d_score = 0;
    if (key <= query) {
      const A score = dot<N>(q, keys + key * stride, head_dim) * at.scale + slope * static_cast<A>(key);
      A d_p = dot<N>(d_o, values + key * stride, head_dim);
      if (mask.row_ids) d_p *= mask.factor<A>(row, attention_dropout_column(head, key));
      d_score = exp(score - log_sum_exp) * (d_p - delta) * at.scale;
    }
    add_rows<T>(
        d_score, min(kWarp, query + 1 - k0), head_dim, [&](int j) { return keys + (k0 + j) * stride; }, result);
  }
  store_head(result, A(1), head_dim, heads.query(at.d_qkv, row, head));
}

// d_k = dSᵀ·q;  d_v = dropout(P)ᵀ·d_o. A warp computes one key. It processes 32 queries at a time, one query per lane.
// It adds the gradients from all query heads that share the key's head, one query head after the other.
template <typename T, int N>
__global__ void __launch_bounds__(kWarps* kWarp) key_gradient_kernel(Backward<T> at, Heads heads, Mask mask) {
  using A = Acc<T>;
  __shared__ A shared[2][kWarps][kMaxHeadDim];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_of_launch = static_cast<int>(blockIdx.y) * heads.group,
            kv_head = (at.first_head + first_of_launch) / heads.group, head_dim = heads.head_dim;
  const RowBlock block = find_block(heads.starts, heads.num_sequences, kWarps, static_cast<int>(blockIdx.x));
  const int key = block.index * kWarps + warp;
  if (!block.found || key >= block.length) return;
  const int64_t row = block.begin + key, stride = heads.width;
  A *const k = shared[0][warp], *const v = shared[1][warp];
  stage_head(heads.key(at.qkv, row, kv_head), head_dim, k);
  stage_head(heads.value(at.qkv, row, kv_head), head_dim, v);
  __syncwarp();
  const int end = heads.end_of_queries(key, block.length);
  A d_k[kLanesOfHead] = {}, d_v[kLanesOfHead] = {};
  for (int member = 0; member < heads.group; ++member) {
    const int of_launch = first_of_launch + member, head = at.first_head + of_launch;
    const A bias = static_cast<A>(heads.slope(head)) * static_cast<A>(key);
    const T *const queries = heads.query(at.qkv, block.begin, head), *const d_os = at.d_o +
                                                                                   static_cast<int64_t>(block.begin) *
                                                                                       heads.channels +
                                                                                   head * head_dim;
    for (int q0 = key; q0 < end; q0 += kWarp) {
      const int query = q0 + lane;
      A p = 0, d_score = 0;
      if (query < end) {
        const int64_t query_row = block.begin + query;
        const A score = dot<N>(k, queries + query * stride, head_dim) * at.scale + bias;
        const A d_p = dot<N>(v, d_os + static_cast<int64_t>(query) * heads.channels, head_dim);
        const A delta = at.deltas[query_row * at.num_heads + of_launch];
        const A factor = mask.row_ids ? mask.factor<A>(query_row, attention_dropout_column(head, key)) : A(1);
        p = exp(score - at.log_sum_exp[query_row * heads.num_heads + head]);
        d_score = p * (factor * d_p - delta) * at.scale;
        p *= factor;
      }
      const int count = min(kWarp, end - q0);
      add_rows<T>(
          d_score, count, head_dim, [&](int j) { return queries + (q0 + j) * stride; }, d_k);
      add_rows<T>(
          p, count, head_dim, [&](int j) { return d_os + static_cast<int64_t>(q0 + j) * heads.channels; }, d_v);
    }
  }
  store_head(d_k, A(1), head_dim, heads.key(at.d_qkv, row, kv_head));
  store_head(d_v, A(1), head_dim, heads.value(at.d_qkv, row, kv_head));
}

template <typename T>
Acc<T> score_scale(const AttentionShape& shape) {
  return static_cast<Acc<T>>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
}

// Calls body(N) with a constant: the number of elements of a head that are loaded together.
template <typename Body>
void with_step(const AttentionShape& shape, Body&& body) {
  if (shape.head_dim % 2 == 0) {
    body(std::integral_constant<int, 2>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

}  // namespace

int heads_at_once(int64_t num_rows, int64_t num_heads, int64_t group, int64_t element_bytes) {
  const int64_t groups = std::min(num_heads / group, kScratchBytes / (num_rows * element_bytes * group));
  TESSERA_ASSERT(groups > 0);
  return static_cast<int>(groups * group);
}

void attention_deltas(const Context& context, View o, View d_o, const AttentionShape& shape, int first, int end) {
  with_float_type(o.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t count = o.shape[0] * (end - first);
    delta_kernel<T><<<blocks_for(count, kWarps), kWarps * kWarp, 0, context.stream>>>(
        data_of<T>(o), data_of<T>(d_o), o.shape[1], static_cast<int>(shape.head_dim), first, end - first, count,
        context.scratch_of<Acc<T>>());
  });
  check_launch("delta_kernel");
}

void plain_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  const Heads heads = Heads::of(call.shape, call.starts);
  const dim3 grid(num_blocks(call.qkv.shape[0], kWarps, heads.num_sequences),
                  static_cast<unsigned>(call.shape.num_heads));
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_step(call.shape, [&](auto n) {
      forward_kernel<T, n><<<grid, kWarps * kWarp, 0, context.stream>>>(
          data_of<T>(call.qkv), heads, Mask::of(call.dropout), score_scale<T>(call.shape), data_of<T>(call.o),
          data_of<Acc<T>>(call.log_sum_exp));
    });
  });
  check_launch("plain attention forward_kernel");
}

void plain_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  const Heads heads = Heads::of(call.shape, call.starts);
  const Mask mask = Mask::of(call.dropout);
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int together = heads_at_once(call.qkv.shape[0], heads.num_heads, heads.group, sizeof(Acc<T>));
    for (int first = 0; first < heads.num_heads; first += together) {
      const int end = std::min(heads.num_heads, first + together);
      attention_deltas(context, call.o, call.d_o, call.shape, first, end);
      const Backward<T> at{data_of<T>(call.qkv),
                           data_of<T>(call.d_o),
                           data_of<Acc<T>>(call.log_sum_exp),
                           context.scratch_of<Acc<T>>(),
                           data_of<T>(call.d_qkv),
                           first,
                           end - first,
                           score_scale<T>(call.shape)};
      const unsigned blocks = num_blocks(call.qkv.shape[0], kWarps, heads.num_sequences);
      const dim3 grid(blocks, static_cast<unsigned>(end - first)),
          kv_grid(blocks, static_cast<unsigned>((end - first) / heads.group));
      with_step(call.shape, [&](auto n) {
        query_gradient_kernel<T, n><<<grid, kWarps * kWarp, 0, context.stream>>>(at, heads, mask);
        check_launch("plain attention query_gradient_kernel");
        key_gradient_kernel<T, n><<<kv_grid, kWarps * kWarp, 0, context.stream>>>(at, heads, mask);
        check_launch("plain attention key_gradient_kernel");
      });
    }
  });
}

}  // namespace tessera::cuda
