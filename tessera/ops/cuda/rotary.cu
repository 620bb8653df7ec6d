// Rotary positions. A row has several heads of D elements each. A group of lanes (threads of the same warp) handles one
// head of one row. A pack is one or more consecutive elements that a lane loads together. Each lane has pairs of packs:
// the second pack of a pair is D/2 elements after the first.
#include <algorithm>

#include "tessera/ops/cuda/column_sums.h"
#include "tessera/ops/cuda/cuda_kernels.h"
#include "tessera/ops/cuda/reduce.cuh"
#include "tessera/ops/cuda/types.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;                           // heads that a group loads before it uses the first of them
constexpr int kBackwardBlocks = 2;                  // blocks per multiprocessor in backward; two fill its registers
constexpr int kAnyPacks = kMaxHeadDim / 2 / kWarp;  // pairs per lane if a pack has one element: enough for any head

// The product of position and frequency is rounded to f32, as in the Python library transformers. The sine and the
// cosine of this product are computed in f64.
template <typename A>
__global__ void angles_kernel(const int32_t* __restrict__ positions, const float* __restrict__ frequencies,
                              double scale, A* __restrict__ rotations, int64_t count, int half) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / half, j = i % half;
  double sine, cosine;
  sincos(static_cast<double>(__fmul_rn(static_cast<float>(positions[row]), frequencies[j])), &sine, &cosine);
  rotations[row * 2 * half + j] = static_cast<A>(scale * cosine);
  rotations[row * 2 * half + half + j] = static_cast<A>(scale * sine);
}

// Arrays of a call. A row has num_queries heads of queries, then num_keys heads of keys, then num_keys heads of values.
template <typename T>
struct Rotary {
  const T *from, *query_weight, *key_weight;  // weights: null without norms
  const Acc<T>* rotations;
  T* to;
  Acc<T> epsilon;
  int num_queries, num_keys, head_dim, lanes;  // lanes of a group
  int64_t num_rows;
};

// The elements of a head that one lane has: kPacks pairs of packs.
template <typename T, int N, int kPacks>
struct Pairs {
  Pack<T, N> first[kPacks], second[kPacks];
};

// Calls body(p, j) for each pair of packs of this lane. p is the number of the pair, from 0. The first pack of the pair
// begins at element j of the head, and the second pack at element j + D/2.
template <int N, int kPacks, typename Body>
__device__ inline void for_pairs(int lane, int lanes, int half, const Body& body) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int j = (lane + p * lanes) * N;
    if (j < half) body(p, j);
  }
}

template <typename T, int N, int kPacks>
__device__ inline void load_pairs(const T* head, int lane, int lanes, int half, Pairs<T, N, kPacks>& pairs) {
  for_pairs<N, kPacks>(lane, lanes, half, [&](int p, int j) {
    pairs.first[p] = load_pack<T, N>(head + j);
    pairs.second[p] = load_pack<T, N>(head + half + j);
  });
}

// Sums over a group of `lanes` lanes. `lanes` must be a power of two.
template <typename A>
__device__ inline A group_sum(A x, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
  return x;
}

template <typename T, int N, int kPacks>
__device__ inline Acc<T> rstd_of(const Pairs<T, N, kPacks>& x, int lane, const Rotary<T>& at) {
  Acc<T> squares = 0;
  for_pairs<N, kPacks>(lane, at.lanes, at.head_dim / 2, [&](int p, int) {
#pragma unroll
    for (int e = 0; e < N; ++e) squares += x.first[p][e] * x.first[p][e] + x.second[p][e] * x.second[p][e];
  });
  return Acc<T>(1) / sqrt(group_sum(squares, at.lanes) / static_cast<Acc<T>>(at.head_dim) + at.epsilon);
}

// Rotates the heads of queries and keys. With kNorms, applies the norms first. With kBack, rotates in the opposite
// direction, for the backward pass without norms. If `to` is not the same array as `from`, copies the heads of values.
template <typename T, int N, int kPacks, bool kNorms, bool kBack>
__global__ void __launch_bounds__(kThreads) rotate_kernel(Rotary<T> at) {
  using A = Acc<T>;
  const int half = at.head_dim / 2, lane = static_cast<int>(threadIdx.x) % at.lanes, groups = kThreads / at.lanes,
            group = static_cast<int>(threadIdx.x) / at.lanes, rotated = at.num_queries + at.num_keys,
            stored = at.to == at.from ? rotated : rotated + at.num_keys;  // heads of a row that are written
  const int64_t width = static_cast<int64_t>(rotated + at.num_keys) * at.head_dim, count = at.num_rows * stored;
  Pairs<T, N, kPacks> x[kAhead];
  int64_t rows[kAhead];
  int heads[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t unit = (static_cast<int64_t>(blockIdx.x) * kAhead + i) * groups + group;
    rows[i] = unit < count ? unit / stored : -1;
    heads[i] = static_cast<int>(unit % stored);
    if (rows[i] >= 0) load_pairs(at.from + rows[i] * width + heads[i] * at.head_dim, lane, at.lanes, half, x[i]);
  }
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const bool is_real = rows[i] >= 0;
    A rstd = 1;
    if constexpr (kNorms) {
      if (!is_real) x[i] = {};
      rstd = rstd_of(x[i], lane, at);
    }
    if (!is_real) continue;
    T* const to = at.to + rows[i] * width + heads[i] * at.head_dim;
    const A* const cosines = at.rotations + rows[i] * at.head_dim;
    const T* const weight = heads[i] < at.num_queries ? at.query_weight : at.key_weight;
    for_pairs<N, kPacks>(lane, at.lanes, half, [&](int p, int j) {
      if (heads[i] >= rotated) {
        store_pack(to + j, x[i].first[p]);
        store_pack(to + half + j, x[i].second[p]);
        return;
      }
      const auto cosine = load_pack<A, N>(cosines + j), sine = load_pack<A, N>(cosines + half + j);
      Pack<T, N> first_weights{}, second_weights{};
      if constexpr (kNorms) {
        first_weights = load_pack<T, N>(weight + j);
        second_weights = load_pack<T, N>(weight + half + j);
      }
      A first[N], second[N];
#pragma unroll
      for (int e = 0; e < N; ++e) {
        A a = x[i].first[p][e], b = x[i].second[p][e];
        if constexpr (kNorms) {
          a *= rstd * first_weights[e];
          b *= rstd * second_weights[e];
        }
        const A s = kBack ? -sine[e] : sine[e];
        first[e] = a * cosine[e] - b * s;
        second[e] = b * cosine[e] + a * s;
      }
      store_pack(to + j, Pack<T, N>::of(first));
      store_pack(to + half + j, Pack<T, N>::of(second));
    });
  }
}

// The gradient through the rotation and the norms. at.from is d_y, and at.to is d_x. x is a head of `qkv`, g is d_y
// rotated back, x̂ = x·rstd, and h = g∘weight. Then d_x = rstd·(h − x̂·Σ(h∘x̂)/D). The gradients of the weights are sums
// of g∘x̂. Each thread block writes its part of these sums to `partial` [2, gridDim.x, D]. Index 0 is for queries, and
// index 1 is for keys.
template <typename T, int N, int kPacks>
__global__ void __launch_bounds__(kThreads)
    rotate_backward_kernel(Rotary<T> at, const T* __restrict__ qkv, Acc<T>* __restrict__ partial) {
  using A = Acc<T>;
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  A* const exchange = reinterpret_cast<A*>(dynamic_shared);  // [groups, D]
  const int d = at.head_dim, half = d / 2, lane = static_cast<int>(threadIdx.x) % at.lanes,
            groups = kThreads / at.lanes, group = static_cast<int>(threadIdx.x) / at.lanes,
            rotated = at.num_queries + at.num_keys;
  const int64_t width = static_cast<int64_t>(rotated + at.num_keys) * d, all_groups = int64_t{gridDim.x} * groups,
                first_unit = static_cast<int64_t>(blockIdx.x) * groups + group;
  for (int kind = 0; kind < 2; ++kind) {
    const int heads = kind == 0 ? at.num_queries : at.num_keys, first_head = kind == 0 ? 0 : at.num_queries,
              step_heads = static_cast<int>(all_groups % heads);
    const T* const weight = kind == 0 ? at.query_weight : at.key_weight;
    const int64_t count = at.num_rows * heads, step_rows = all_groups / heads;
    A first_sums[kPacks][N] = {}, second_sums[kPacks][N] = {};
    int64_t row = first_unit / heads;
    int head = static_cast<int>(first_unit % heads);
    Pairs<T, N, kPacks> next_x{}, next_gradient{};
    const auto load_next = [&](bool is_real) {
      next_x = next_gradient = {};
      if (!is_real) return;
      const int64_t in = row * width + (first_head + head) * d;
      load_pairs(qkv + in, lane, at.lanes, half, next_x);
      load_pairs(at.from + in, lane, at.lanes, half, next_gradient);
    };
    load_next(first_unit < count);
    // All groups of a warp must run the same number of iterations, because they shuffle together.
    for (int64_t unit = first_unit; unit - group < count; unit += all_groups) {
      const bool is_real = unit < count;
      const Pairs<T, N, kPacks> x = next_x, gradient = next_gradient;
      const int64_t in = row * width + (first_head + head) * d;
      const A* const cosines = at.rotations + (is_real ? row * d : 0);
      row += step_rows;
      head += step_heads;
      if (head >= heads) {
        head -= heads;
        ++row;
      }
      load_next(unit + all_groups < count);  // starts to load the next head before this head is computed
      const A rstd = rstd_of(x, lane, at);
      A first[kPacks][N], second[kPacks][N], sum = 0;
      for_pairs<N, kPacks>(lane, at.lanes, half, [&](int p, int j) {
        const auto cosine = load_pack<A, N>(cosines + j), sine = load_pack<A, N>(cosines + half + j);
        const auto first_weights = load_pack<T, N>(weight + j), second_weights = load_pack<T, N>(weight + half + j);
#pragma unroll
        for (int e = 0; e < N; ++e) {
          const A a = gradient.first[p][e], b = gradient.second[p][e];
          const A g1 = a * cosine[e] + b * sine[e], g2 = b * cosine[e] - a * sine[e];
          const A x1 = x.first[p][e] * rstd, x2 = x.second[p][e] * rstd;
          first_sums[p][e] += g1 * x1;
          second_sums[p][e] += g2 * x2;
          first[p][e] = g1 * first_weights[e];
          second[p][e] = g2 * second_weights[e];
          sum += first[p][e] * x1 + second[p][e] * x2;
        }
      });
      const A mean = group_sum(sum, at.lanes) / static_cast<A>(d);
      if (!is_real) continue;
      T* const to = at.to + in;
      for_pairs<N, kPacks>(lane, at.lanes, half, [&](int p, int j) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
          first[p][e] = rstd * (first[p][e] - x.first[p][e] * rstd * mean);
          second[p][e] = rstd * (second[p][e] - x.second[p][e] * rstd * mean);
        }
        store_pack(to + j, Pack<T, N>::of(first[p]));
        store_pack(to + half + j, Pack<T, N>::of(second[p]));
      });
    }
    for_pairs<N, kPacks>(lane, at.lanes, half, [&](int p, int j) {
      store_pack(exchange + group * d + j, Pack<A, N>::of(first_sums[p]));
      store_pack(exchange + group * d + half + j, Pack<A, N>::of(second_sums[p]));
    });
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < d; c += kThreads) {
      A sum = 0;
      for (int g = 0; g < groups; ++g) sum += exchange[g * d + c];
      partial[(static_cast<int64_t>(kind) * gridDim.x + blockIdx.x) * d + c] = sum;
    }
    __syncthreads();
  }
  if (at.to == at.from) return;
  // Copies the gradients of the values, because values have no rotation and no norm.
  for (int64_t unit = first_unit; unit < at.num_rows * at.num_keys; unit += all_groups) {
    const int64_t in = unit / at.num_keys * width + (rotated + unit % at.num_keys) * d;
    Pairs<T, N, kPacks> values;
    load_pairs(at.from + in, lane, at.lanes, half, values);
    for_pairs<N, kPacks>(lane, at.lanes, half, [&](int p, int j) {
      store_pack(at.to + in + j, values.first[p]);
      store_pack(at.to + in + half + j, values.second[p]);
    });
  }
}

// Sets at.lanes, the number of lanes in a group. Then calls body(N, packs) with compile-time constants: a pack has N
// elements, and a lane has `packs` pairs of packs. If D and the addresses of the views allow packs of 16 bytes, and a
// warp with one pair of such packs per lane is enough for a head, then each lane has one such pair. The number of lanes
// is then the smallest power of two that is enough for a head. Otherwise, a group is a warp, and a pack has one
// element.
template <typename T, typename Body>
void with_lanes(Rotary<T>& at, std::initializer_list<View> views, Body&& body) {
  using std::integral_constant;
  const int half = at.head_dim / 2;
  with_pack<T>(half, views, [&](auto n) {
    if (n > 1 && half <= n * kWarp) {
      for (at.lanes = 1; at.lanes * n < half;) at.lanes *= 2;
      return body(n, integral_constant<int, 1>());
    }
    at.lanes = kWarp;
    body(integral_constant<int, 1>(), integral_constant<int, kAnyPacks>());
  });
}

template <typename T>
Rotary<T> rotary_of(const Kernels::RotateHeads& call) {
  return {data_of<T>(call.qkv),
          data_of<T>(call.norms.query_weight),
          data_of<T>(call.norms.key_weight),
          data_of<Acc<T>>(call.rotations),
          data_of<T>(call.y),
          static_cast<Acc<T>>(call.norms.epsilon),
          static_cast<int>(call.shape.num_heads),
          static_cast<int>(call.shape.kv_heads()),
          static_cast<int>(call.shape.head_dim),
          kWarp,
          call.qkv.shape[0]};
}

void check_shapes(const Kernels::RotateHeads& call) {
  const AttentionShape& shape = call.shape;
  const HeadNorms& norms = call.norms;
  TESSERA_ASSERT(shape.layout == QkvLayout::blocked && shape.head_dim % 2 == 0 && shape.head_dim <= kMaxHeadDim);
  TESSERA_ASSERT(call.qkv.shape[1] == shape.row_channels() && call.y.shape == call.qkv.shape);
  TESSERA_ASSERT(call.rotations.shape == (Shape{call.qkv.shape[0], shape.head_dim}));
  TESSERA_ASSERT(!norms.query_weight == !norms.key_weight);
  TESSERA_ASSERT(!norms.query_weight ||
                 (norms.query_weight.num_elems() == shape.head_dim && norms.key_weight.num_elems() == shape.head_dim));
}

template <bool kNorms, bool kBack>
void rotate(const Context& context, const Kernels::RotateHeads& call) {
  with_float_type(call.qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    Rotary<T> at = rotary_of<T>(call);
    const auto views = {call.qkv, call.rotations, call.norms.query_weight, call.norms.key_weight, call.y};
    with_lanes<T>(at, views, [&](auto n, auto packs) {
      const int64_t heads = call.shape.num_heads + call.shape.kv_heads() * (call.y.data == call.qkv.data ? 1 : 2);
      rotate_kernel<T, n, packs, kNorms, kBack>
          <<<blocks_for(call.qkv.shape[0] * heads, kThreads / at.lanes * kAhead), kThreads, 0, context.stream>>>(at);
    });
  });
  check_launch("rotate_kernel");
}

}  // namespace

void CudaKernels::rotary_angles(View positions, View frequencies, double scale, View rotations) {
  const int64_t rows = positions.num_elems(), half = frequencies.num_elems(), count = rows * half;
  TESSERA_ASSERT(rotations.shape == (Shape{rows, 2 * half}));
  if (count == 0) return;
  const auto launch = [&](auto zero) {
    using A = decltype(zero);
    angles_kernel<A><<<blocks_for(count, kThreads), kThreads, 0, context_.stream>>>(
        positions.as<int32_t>(), frequencies.as<float>(), scale, data_of<A>(rotations), count, static_cast<int>(half));
  };
  rotations.dtype == DType::f64 ? launch(double{}) : launch(float{});
  check_launch("angles_kernel");
}

void CudaKernels::rotate_heads(const RotateHeads& call) {
  check_shapes(call);
  TESSERA_ASSERT(!call.norms.query_weight || call.y.data != call.qkv.data);
  if (call.qkv.shape[0] == 0) return;
  if (call.norms.query_weight) return rotate<true, false>(context_, call);
  rotate<false, false>(context_, call);
}

void CudaKernels::rotate_heads_backward(const RotateHeadsBackward& call) {
  const View d_y = call.d_y;
  const int64_t head_dim = call.shape.head_dim;
  // The heads are rotated back from d_y to d_qkv.
  const RotateHeads back{
      .qkv = d_y, .rotations = call.rotations, .shape = call.shape, .norms = call.norms, .y = call.d_qkv};
  check_shapes(back);
  if (d_y.shape[0] == 0) return;
  if (!call.norms.query_weight) return rotate<false, true>(context_, back);
  TESSERA_ASSERT(call.qkv.shape == d_y.shape);
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Acc<T>;
    Rotary<T> at = rotary_of<T>(back);
    const int64_t blocks =
        std::min<int64_t>({kBackwardBlocks * context_.num_multiprocessors, Context::scratch_elems<A>() / (2 * head_dim),
                           (d_y.shape[0] * call.shape.num_heads + 7) / 8});
    const auto views = {d_y, call.qkv, call.rotations, call.norms.query_weight, call.norms.key_weight, call.d_qkv};
    with_lanes<T>(at, views, [&](auto n, auto packs) {
      const size_t shared = static_cast<size_t>(kThreads / at.lanes * at.head_dim) * sizeof(A);
      rotate_backward_kernel<T, n, packs><<<static_cast<unsigned>(blocks), kThreads, shared, context_.stream>>>(
          at, data_of<T>(call.qkv), context_.scratch_of<A>());
    });
    check_launch("rotate_backward_kernel");
    A* const partial = context_.scratch_of<A>();
    const auto add_sums = [&](A* sums, View d_weight) {
      const ColumnSums columns{
          {reinterpret_cast<std::byte*>(sums), dtype_in_views<A>(), {blocks, head_dim}}, d_weight, {}};
      if (d_weight) add_column_sums(context_, {&columns, 1});
    };
    add_sums(partial, call.d_query_weight);
    add_sums(partial + blocks * head_dim, call.d_key_weight);
  });
}

}  // namespace tessera::cuda
