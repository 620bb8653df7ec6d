// The formulas are in attention_backward.cuh. The first kernel computes the deltas, the second the gradients of
// queries, and the third the gradients of keys and values. Scores are computed twice, but the order of all additions is
// fixed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/cuda/attention_plain.h"
#include "tessera/ops/cuda/attention_wide.cuh"
#include "tessera/ops/cuda/attention_wide.h"

namespace tessera::cuda {
namespace {

constexpr int kKeys = 128;    // keys that a task of queries loads at a time
constexpr int kQueries = 64;  // queries that a task of keys loads at a time
// A consumer may use three stages: its last products still read the first, it skips the second because the queries
// there see none of its keys, and it waits for the third.
constexpr int kStages = 3;

template <typename T>
struct Arrays {
  const float* log_sum_exp;  // [N, H]
  const float* deltas;       // [N, num_heads], of the heads from first_head on
  T* d_qkv;
  int first_head, num_heads, num_blocks;
  float scale;
};

template <typename T>
struct SharedOfQueries {
  WideTile<T, kWideRows> q, d_o, d_q;
  WideTile<T, kKeys> k[2], v[2];
  Barrier own_full, own_empty, k_full[2], k_empty[2], v_full[2], v_empty[2];
  WideTask task;
};

template <typename T>
struct SharedOfKeys {
  WideTile<T, kWideRows> k, v, gradient;  // d_k, then d_v
  WideTile<T, kQueries> q[kStages], d_o[kStages];
  float log_sum_exp[kStages][kQueries], deltas[kStages][kQueries];
  Barrier own_full, own_empty, full[kStages], empty[kStages];
  WideTask task;
};

template <typename T>
__device__ inline void produce(SharedOfQueries<T>& shared, const CUtensorMap& qkv, const CUtensorMap& d_o,
                               const Arrays<T>& at, const Heads& heads) {
  const bool leads = threadIdx.x == 0;
  int count = 0, tasks = 0;
  for_each_task(heads, at.num_heads, at.num_blocks, [&](const RowBlock& block, int head_of_launch) {
    const int head = at.first_head + head_of_launch, kv_head = head / heads.group, q0 = block.index * kWideRows,
              first = heads.first_block(q0, kKeys);
    for (int k0 = first; k0 <= q0; k0 += kKeys, ++count) {
      const int stage = count & 1, before = (count >> 1 & 1) ^ 1;
      wait_for(&shared.k_empty[stage], before);
      if (leads) {
        arrive_expecting(&shared.k_full[stage], WideTile<T, kKeys>::kBytes);
        copy_tile(qkv, &shared.k_full[stage], shared.k[stage], place_of_key(heads, kv_head), block.begin + k0);
      }
      if (k0 == first) {
        wait_for(&shared.own_empty, (tasks & 1) ^ 1);
        if (leads) {
          shared.task = {block.begin, block.length, block.index, head};
          arrive_expecting(&shared.own_full, 2 * WideTile<T, kWideRows>::kBytes);
          copy_tile(qkv, &shared.own_full, shared.q, place_of_query(heads, head), block.begin + q0);
          copy_tile(d_o, &shared.own_full, shared.d_o, head, block.begin + q0);
        }
      }
      wait_for(&shared.v_empty[stage], before);
      if (leads) {
        arrive_expecting(&shared.v_full[stage], WideTile<T, kKeys>::kBytes);
        copy_tile(qkv, &shared.v_full[stage], shared.v[stage], place_of_value(heads, kv_head), block.begin + k0);
      }
    }
    ++tasks;
  });
  wait_for(&shared.own_empty, (tasks & 1) ^ 1);
  if (leads) {
    shared.task.head = -1;
    arrive(&shared.own_full);
  }
}

template <typename T>
__device__ inline void consume(SharedOfQueries<T>& shared, const Arrays<T>& at, const Heads& heads) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1, warp = static_cast<int>(threadIdx.x) / kWarp % 4,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_row = group * 64 + warp * 16;
  for (int tasks = 0, count = 0;; ++tasks) {
    wait_for(&shared.own_full, tasks & 1);
    const WideTask task = shared.task;
    if (task.head < 0) return;
    const int q0 = task.index * kWideRows, first_row = q0 + own_row, rows = task.length - first_row;
    const int64_t row = int64_t{task.begin} + first_row;
    const Scores scores(at.scale, heads.slope(task.head));
    float log_sum_exp[2], delta[2];  // probabilities of rows past the end become 0
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = half * 8 + lane / 4;
      const bool real = r < rows;
      log_sum_exp[half] = real ? at.log_sum_exp[(row + r) * heads.num_heads + task.head] * kLog2E
                               : std::numeric_limits<float>::infinity();
      delta[half] = real ? at.deltas[(row + r) * at.num_heads + task.head - at.first_head] : 0.0f;
    }
    Accumulator<kKeys> s, d_p;
    Accumulator<kWideColumns> d_q;
    FragmentA d_s[kKeys / 16];
    d_q.clear();
    const int first = heads.first_block(q0, kKeys);
    for (int k0 = first; k0 <= q0; k0 += kKeys, ++count) {
      const int stage = count & 1, parity = count >> 1 & 1;
      wait_for(&shared.k_full[stage], parity);
      start_transposed(s, shared.q, group * 64, shared.k[stage]);
      wait_for_products<1>(d_q);  // the previous block's sum: its left factor's registers are needed now
      if (k0 > first) release(&shared.k_empty[stage ^ 1]);
      wait_for(&shared.v_full[stage], parity);
      start_transposed(d_p, shared.d_o, group * 64, shared.v[stage]);
      wait_for_products<1>(s);
      const float first_bias = scores.bias(k0 + lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e % 2), first_bias);
          s.at[n][e] = fast_exp2(fmaf(s.at[n][e], scores.scale, bias - log_sum_exp[e / 2]));
        }
      }
      if (needs_mask(first_row, k0, kKeys, heads.window)) mask_scores(s, first_row, k0, heads.window, 0);
      wait_for_products<0>(d_p);
      release(&shared.v_empty[stage]);
      if (k0 == q0) release(&shared.own_empty);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s.at[n][e] *= d_p.at[n][e] - delta[e / 2];
      }
      round_to_left<T>(s, d_s);
      start_sum(d_q, d_s, shared.k[stage]);
    }
    wait_for_products<0>(d_q);
    release(&shared.k_empty[(count - 1) & 1]);
    store_wide_rows(d_q, shared.d_q, own_row, heads.query(at.d_qkv, row, task.head), heads.width, rows, heads.head_dim,
                    [&](int) { return at.scale; });
    __syncwarp();  // the next task's results overwrite the tile
  }
}

// Calls body(member, q0) for the blocks of queries that see some of the keys from k0 on, for each query head of a
// group.
template <typename Body>
__device__ inline void for_each_query_block(const Heads& heads, int k0, int length, const Body& body) {
  const int end = heads.end_of_queries(min(k0 + kWideRows, length) - 1, length);
  for (int member = 0; member < heads.group; ++member) {
    for (int q0 = k0; q0 < end; q0 += kQueries) body(member, q0);
  }
}
// Blocks of keys are counted from the end of the sequence, because more queries see the first keys.
__device__ inline int first_key_of(int index, int length) {
  return ((length - 1) / kWideRows - index) * kWideRows;
}

// One warp copies tiles. Another warp copies the statistics of their queries.
template <typename T>
__device__ inline void produce(SharedOfKeys<T>& shared, const CUtensorMap& own, const CUtensorMap& queries,
                               const CUtensorMap& d_o, const Arrays<T>& at, const Heads& heads) {
  const bool copies_tiles = threadIdx.x < kWarp, leads = threadIdx.x == 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int stage = 0, before = 1, tasks = 0;
  for_each_task(heads, at.num_heads / heads.group, at.num_blocks, [&](const RowBlock& block, int kv_of_launch) {
    const int k0 = first_key_of(block.index, block.length), first_of_launch = kv_of_launch * heads.group,
              first_head = at.first_head + first_of_launch, kv_head = first_head / heads.group;
    if (copies_tiles) {
      wait_for(&shared.own_empty, (tasks & 1) ^ 1);
      if (leads) {
        shared.task = {block.begin, block.length, block.index, first_head};
        arrive_expecting(&shared.own_full, 2 * WideTile<T, kWideRows>::kBytes);
        copy_tile(own, &shared.own_full, shared.k, place_of_key(heads, kv_head), block.begin + k0);
        copy_tile(own, &shared.own_full, shared.v, place_of_value(heads, kv_head), block.begin + k0);
      }
    }
    for_each_query_block(heads, k0, block.length, [&](int member, int q0) {
      wait_for(&shared.empty[stage], before);
      if (leads) {
        arrive_expecting(&shared.full[stage], 2 * WideTile<T, kQueries>::kBytes);
        copy_tile(queries, &shared.full[stage], shared.q[stage], place_of_query(heads, first_head + member),
                  block.begin + q0);
        copy_tile(d_o, &shared.full[stage], shared.d_o[stage], first_head + member, block.begin + q0);
      }
      if (!copies_tiles) {
#pragma unroll
        for (int i = 0; i < kQueries; i += kWarp) {
          const int query = q0 + i + lane;
          const bool real = query < block.length;
          const int64_t row = real ? block.begin + query : block.begin;
          copy_word_async(&shared.log_sum_exp[stage][i + lane],
                          at.log_sum_exp + row * heads.num_heads + first_head + member, real);
          copy_word_async(&shared.deltas[stage][i + lane], at.deltas + row * at.num_heads + first_of_launch + member,
                          real);
        }
        arrive_after_copies(&shared.full[stage]);
      }
      if (++stage == kStages) {
        stage = 0;
        before ^= 1;
      }
    });
    ++tasks;
  });
  if (!copies_tiles) return;
  wait_for(&shared.own_empty, (tasks & 1) ^ 1);
  if (leads) {
    shared.task.head = -1;
    arrive(&shared.own_full);
  }
}

// Works on Sᵀ and dPᵀ: rows are keys and columns are queries.
template <typename T>
__device__ inline void consume(SharedOfKeys<T>& shared, const Arrays<T>& at, const Heads& heads) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1, warp = static_cast<int>(threadIdx.x) / kWarp % 4,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_row = group * 64 + warp * 16;
  int stage = 0, parity = 0;
  for (int tasks = 0;; ++tasks) {
    wait_for(&shared.own_full, tasks & 1);
    const WideTask task = shared.task;
    if (task.head < 0) return;
    const int k0 = first_key_of(task.index, task.length), first_row = k0 + own_row, first_of_group = k0 + group * 64,
              rows = task.length - first_row;
    Accumulator<kQueries> s, d_p;
    Accumulator<kWideColumns> d_k, d_v;
    FragmentA p[kQueries / 16], d_s[kQueries / 16];
    d_k.clear();
    d_v.clear();
    int held = -1;  // the stage that outstanding products read
    for_each_query_block(heads, k0, task.length, [&](int member, int q0) {
      const int now = stage;
      wait_for(&shared.full[now], parity);
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
      if (first_of_group >= task.length || q0 + kQueries <= first_of_group) {  // all keys are hidden
        release(&shared.empty[now]);
        return;
      }
      start_transposed(s, shared.k, group * 64, shared.q[now]);
      wait_for_products<1>(d_k, d_v);  // the previous block's sums: their left factors' registers are needed now
      if (held >= 0) release(&shared.empty[held]);
      held = now;
      start_transposed(d_p, shared.v, group * 64, shared.d_o[now]);
      wait_for_products<1>(s);
      const Scores scores(at.scale, heads.slope(task.head + member));
      const float biases[2] = {scores.bias(first_row + lane / 4), scores.bias(first_row + 8 + lane / 4)};
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
        const auto log_sum_exps = load_pack<float, 2>(shared.log_sum_exp[now] + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s.at[n][e] = fast_exp2(fmaf(log_sum_exps.at[e % 2], -kLog2E, fmaf(s.at[n][e], scores.scale, biases[e / 2])));
        }
      }
      if (first_row + 16 - 1 > q0 || q0 + kQueries > task.length || q0 + kQueries - first_row > heads.window) {
#pragma unroll
        for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int query = q0 + n * 8 + lane % 4 * 2 + e % 2, ahead = query - (first_row + e / 2 * 8 + lane / 4);
            if (ahead < 0 || ahead >= heads.window || query >= task.length) s.at[n][e] = 0;
          }
        }
      }
      wait_for_products<0>(d_p);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
        const auto deltas = load_pack<float, 2>(shared.deltas[now] + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) d_p.at[n][e] = s.at[n][e] * (d_p.at[n][e] - deltas.at[e % 2]);
      }
      round_to_left<T>(s, p);
      round_to_left<T>(d_p, d_s);
      start_sum(d_v, p, shared.d_o[now]);
      start_sum(d_k, d_s, shared.q[now]);
    });
    wait_for_products<0>(d_k, d_v);
    if (held >= 0) release(&shared.empty[held]);
    release(&shared.own_empty);
    const int64_t row = int64_t{task.begin} + first_row;
    const int kv_head = task.head / heads.group;
    store_wide_rows(d_k, shared.gradient, own_row, heads.key(at.d_qkv, row, kv_head), heads.width, rows, heads.head_dim,
                    [&](int) { return at.scale; });
    __syncwarp();
    store_wide_rows(d_v, shared.gradient, own_row, heads.value(at.d_qkv, row, kv_head), heads.width, rows,
                    heads.head_dim, [](int) { return 1.0f; });
    __syncwarp();  // the next task's results overwrite the tile
  }
}

constexpr int kDeltaLanes = 16, kDeltaThreads = 256;

// deltas[row, head] = Σ_d d_o∘o for the heads from first_head on. 16 lanes share a head, and each reads 16 bytes.
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    wide_deltas_kernel(const T* __restrict__ o, const T* __restrict__ d_o, int channels, int head_dim, int first_head,
                       int num_heads, int count, float* __restrict__ deltas) {
  const int number = (static_cast<int>(blockIdx.x) * kDeltaThreads + static_cast<int>(threadIdx.x)) / kDeltaLanes,
            column = static_cast<int>(threadIdx.x) % kDeltaLanes * 8;
  float sum = 0;
  if (number < count && column < head_dim) {
    const int64_t at =
        static_cast<int64_t>(number / num_heads) * channels + (first_head + number % num_heads) * head_dim + column;
    const auto left = load_pack<T, 8>(o + at), right = load_pack<T, 8>(d_o + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(left[i], right[i], sum);
  }
#pragma unroll
  for (int offset = kDeltaLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
  if (number < count && column == 0) deltas[number] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_query_gradient_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap d_o,
                               Arrays<T> at, Heads heads) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedOfQueries<T>*>(memory);
  if (threadIdx.x == 0) {
    init_barrier(&shared.own_full, 1);
    init_barrier(&shared.own_empty, kConsumerWarps);
    for (int stage = 0; stage < 2; ++stage) {
      init_barrier(&shared.k_full[stage], 1);
      init_barrier(&shared.v_full[stage], 1);
      init_barrier(&shared.k_empty[stage], kConsumerWarps);
      init_barrier(&shared.v_empty[stage], kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    Registers<24, 240>::give_back();
    if (threadIdx.x < kWarp) produce(shared, qkv, d_o, at, heads);
  } else {
    Registers<24, 240>::take();
    consume(shared, at, heads);
  }
}

template <typename T>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_key_gradient_kernel(const __grid_constant__ CUtensorMap own, const __grid_constant__ CUtensorMap queries,
                             const __grid_constant__ CUtensorMap d_o, Arrays<T> at, Heads heads) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedOfKeys<T>*>(memory);
  if (threadIdx.x == 0) {
    init_barrier(&shared.own_full, 1);
    init_barrier(&shared.own_empty, kConsumerWarps);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(&shared.full[stage], 1 + kWarp);
      init_barrier(&shared.empty[stage], kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    Registers<24, 240>::give_back();
    if (threadIdx.x < 2 * kWarp) produce(shared, own, queries, d_o, at, heads);
  } else {
    Registers<24, 240>::take();
    consume(shared, at, heads);
  }
}

}  // namespace

void wide_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                             const AttentionShape& shape, View d_qkv) {
  const Heads heads = Heads::of(shape, starts);
  const CUtensorMap own = map_of_heads(qkv, heads_of_row(shape), shape.head_dim, qkv.shape[1], kWideRows),
                    queries = map_of_heads(qkv, heads_of_row(shape), shape.head_dim, qkv.shape[1], kQueries),
                    own_d_o = map_of_heads(d_o, shape.num_heads, shape.head_dim, d_o.shape[1], kWideRows),
                    passing_d_o = map_of_heads(d_o, shape.num_heads, shape.head_dim, d_o.shape[1], kQueries);
  const auto blocks = static_cast<int>(num_blocks(qkv.shape[0], kWideRows, heads.num_sequences));
  const auto grid_of = [&](int num_heads) {
    return static_cast<unsigned>(std::min(context.num_multiprocessors, blocks * num_heads));
  };
  const auto launch = [&](auto zero) {
    using T = decltype(zero);
    auto* const query_kernel = wide_query_gradient_kernel<T>;
    auto* const key_kernel = wide_key_gradient_kernel<T>;
    allow_shared(query_kernel, sizeof(SharedOfQueries<T>));
    allow_shared(key_kernel, sizeof(SharedOfKeys<T>));
    const int together = heads_at_once(qkv.shape[0], heads.num_heads, heads.group, sizeof(float));
    for (int first = 0; first < heads.num_heads; first += together) {
      const int count = std::min(heads.num_heads - first, together);
      const auto deltas = static_cast<int>(qkv.shape[0]) * count;
      wide_deltas_kernel<<<blocks_for(deltas, kDeltaThreads / kDeltaLanes), kDeltaThreads, 0, context.stream>>>(
          data_of<T>(o), data_of<T>(d_o), heads.channels, heads.head_dim, first, count, deltas,
          context.scratch_of<float>());
      check_launch("wide_deltas_kernel");
      const Arrays<T> at{data_of<float>(log_sum_exp),
                         context.scratch_of<float>(),
                         data_of<T>(d_qkv),
                         first,
                         count,
                         blocks,
                         1 / std::sqrt(static_cast<float>(shape.head_dim))};
      query_kernel<<<grid_of(count), kWideThreads, sizeof(SharedOfQueries<T>), context.stream>>>(own, own_d_o, at,
                                                                                                 heads);
      check_launch("wide_query_gradient_kernel");
      key_kernel<<<grid_of(count / heads.group), kWideThreads, sizeof(SharedOfKeys<T>), context.stream>>>(
          own, queries, passing_d_o, at, heads);
      check_launch("wide_key_gradient_kernel");
    }
  };
  if (qkv.dtype == DType::f16) {
    launch(Half{});
  } else {
    launch(Bf16{});
  }
}

}  // namespace tessera::cuda
