// The formulas are in attention_backward.cuh. A task has 128 keys of a head of keys and values, and goes through all
// queries that see these keys. For each block of queries, it computes 5 products: scores, dP, d_v, d_k and a part of
// d_q. It sums d_v and d_k over the queries in registers. The complete d_q is the sum of the parts of several
// tasks. These tasks add their parts in an order that is fixed for each head (attention_tma_tasks.cuh). Therefore the
// result does not depend on which task is faster. All tasks except the last one in this order add to a sum in memory.
// The last task adds this sum to its part in registers, and writes d_q.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/cuda/attention.h"
#include "tessera/ops/cuda/attention_tma.cuh"
#include "tessera/ops/cuda/attention_tma_tasks.cuh"

namespace tessera::cuda {
namespace {

constexpr int kStages = 2;

template <typename T, int kColumns>
struct Shared {
  HeadTile<T, kTaskRows, kColumns> k, v;
  HeadTile<T, kQueries, kColumns> q[kStages], d_o[kStages];
  T d_s[2][kTaskRows * kQueries];   // dSᵀ of a block of queries, in the layout SwizzledRows: rows are keys
  float d_q[kQueries * kColumns];   // this task's part of d_q, before it is added to the sums in memory
  float sums[kQueries * kColumns];  // the sum of the other tasks' parts, if this task is the last to add
  float log_sum_exp[kStages][kQueries], deltas[kStages][kQueries];
  Barrier own_full, own_empty, full[kStages], empty[kStages], d_s_full[2], d_s_empty[2], d_q_full[2], d_q_empty,
      sums_full, sums_empty;
  Task task;
};

// The producer's first warp takes tasks. It copies the tiles of each task, and log_sum_exp and delta of the queries.
// All thread blocks together take the tasks in the order of the tasks' numbers. A task waits only for tasks with
// smaller numbers. The unfinished task with the smallest number therefore waits for no other task, and the kernel
// cannot hang, even if some thread blocks cannot run yet.
template <typename T, int kColumns>
__device__ inline void copy_tiles(Shared<T, kColumns>& shared, const CUtensorMap& own, const CUtensorMap& queries,
                                  const CUtensorMap& own_d_o, const Arrays<T>& at, const Heads& heads) {
  const int lane = static_cast<int>(threadIdx.x), end = at.num_heads / heads.group * at.num_blocks;
  int stage = 0, before = 1;
  for (int tasks = 0;; ++tasks) {
    Task task{0, 0, 0, -1, false};
    for (int number = 0; task.head < 0 && number < end;) {
      if (lane == 0) number = atomicAdd(at.next_task, 1);
      number = __shfl_sync(kAllLanes, number, 0);
      if (number < end) task = find_task(at, heads, number);
    }
    wait_for(&shared.own_empty, (tasks & 1) ^ 1);
    if (lane == 0) {
      shared.task = task;
      if (task.head < 0) {
        arrive(&shared.own_full);
      } else {
        const int kv_head = task.head / heads.group, row = task.begin + task.k0;
        arrive_expecting(&shared.own_full, 2 * sizeof(shared.k));
        copy_tile(own, &shared.own_full, shared.k, place_of_key(heads, kv_head), row);
        copy_tile(own, &shared.own_full, shared.v, place_of_value(heads, kv_head), row);
      }
    }
    if (task.head < 0) return;
    for_each_query_block(heads, task, [&](int member, int q0) {
      const int head = task.head + member;
      wait_for(&shared.empty[stage], before);
      if (lane == 0) {
        arrive_expecting(&shared.full[stage], 2 * sizeof(shared.q[0]));
        copy_tile(queries, &shared.full[stage], shared.q[stage], place_of_query(heads, head), task.begin + q0);
        copy_tile(own_d_o, &shared.full[stage], shared.d_o[stage], head, task.begin + q0);
      }
#pragma unroll
      for (int i = 0; i < kQueries; i += kWarp) {
        const int query = q0 + i + lane;
        const bool real = query < task.length;
        const int64_t row = real ? task.begin + query : task.begin;
        copy_word_async(&shared.log_sum_exp[stage][i + lane], at.log_sum_exp + row * heads.num_heads + head, real);
        copy_word_async(&shared.deltas[stage][i + lane], at.deltas + row * at.num_heads + head - at.first_head, real);
      }
      arrive_after_copies(&shared.full[stage]);
      if (++stage == kStages) {
        stage = 0;
        before ^= 1;
      }
    });
  }
}

// Calls body(task) for each task that copy_tiles() takes for this thread block.
template <typename T, int kColumns, typename Body>
__device__ inline void for_each_taken_task(Shared<T, kColumns>& shared, const Body& body) {
  for (int tasks = 0;; ++tasks) {
    wait_for(&shared.own_full, tasks & 1);
    const Task task = read_task(shared.task);
    if (task.head < 0) return;
    body(task);
  }
}

// If a task is the last of several to add its part of d_q for a block of queries, the producer's second warp copies the
// sum of the other tasks' parts to shared memory.
template <typename T, int kColumns>
__device__ inline void copy_sums(Shared<T, kColumns>& shared, const Arrays<T>& at, const Heads& heads) {
  const bool leads = threadIdx.x % kWarp == 0;
  int copied = 0;
  for_each_taken_task(shared, [&](const Task& task) {
    release(&shared.own_empty);
    if (!leads) return;
    for_each_query_block(heads, task, [&](int member, int q0) {
      const int before = tasks_before(heads, task, q0);
      if (before == 0 || tasks_after(heads, task, q0) > 0) return;
      const int64_t index = at.index_of_sum(task.head + member, task.begin + q0);
      wait_for_tasks(at.counts + index, before);
      wait_for(&shared.sums_empty, (copied++ & 1) ^ 1);
      arrive_expecting(&shared.sums_full, sizeof(shared.sums));
      load_bytes(&shared.sums_full, shared.sums, at.sums + index * (kQueries * kColumns), sizeof(shared.sums));
    });
  });
}

// The producer's last two warps add the parts of d_q to the sums in memory. Each of the two warps adds every second
// part, because an addition takes longer than the products of a block of queries.
template <typename T, int kColumns>
__device__ inline void add_parts(Shared<T, kColumns>& shared, const Arrays<T>& at, const Heads& heads, int turn) {
  const bool leads = threadIdx.x % kWarp == 0;
  int parts = 0;
  for_each_taken_task(shared, [&](const Task& task) {
    release(&shared.own_empty);
    if (!leads) return;
    for_each_query_block(heads, task, [&](int member, int q0) {
      if (tasks_after(heads, task, q0) == 0) return;  // the last task: the consumers write d_q
      const int part = parts++;
      if (part % 2 != turn) return;
      const int before = tasks_before(heads, task, q0);
      const int64_t index = at.index_of_sum(task.head + member, task.begin + q0);
      float* const sums = at.sums + index * (kQueries * kColumns);
      wait_for_tasks(at.counts + index, before);
      wait_for(&shared.d_q_full[turn], part / 2 & 1);
      if (before == 0) {
        store_bytes(sums, shared.d_q, sizeof(shared.d_q));
      } else {
        add_floats(sums, shared.d_q, sizeof(shared.d_q));
      }
      commit_stores();
      wait_for_reads_of_stores();
      arrive(&shared.d_q_empty);
      wait_for_stores();
      count_task(at.counts + index);
    });
  });
}

// Starts d_q = dS·k for a consumer's half of the columns.
template <typename T, int kColumns>
__device__ inline void start_query_gradients(Accumulator<kColumns / kConsumers>& d_q, const T* d_s,
                                             const HeadTile<T, kTaskRows, kColumns>& k, int group) {
  const int column = group * kColumns / kConsumers;
  const uint64_t a = opaque(tile_descriptor(d_s)), b = opaque(tile_descriptor(k.parts[column / 64] + column % 64));
  keep(d_q);
  begin_products();
#pragma unroll
  for (uint32_t i = 0; i < kTaskRows / 16; ++i) {
    start_product<T, Inner::across_rows>(d_q, a + i * kStepOfRows, b + i * kStepOfRows, i > 0);
  }
  commit_products();
}

// The consumers work on Sᵀ and dPᵀ: rows are keys and columns are queries. Each consumer has 64 keys of the task. d_q
// needs the dS of all keys of the task, so each consumer computes half of the columns of d_q, from the dS of both
// consumers. The consumers should not wait for each other: one computes exponentials while the other uses the tensor
// cores. Therefore a consumer computes d_q of a block of queries only while it works on the next block. By then, the
// other consumer has usually stored its dS.
template <typename T, int kColumns>
__device__ inline void consume(Shared<T, kColumns>& shared, const Arrays<T>& at, const Heads& heads) {
  constexpr int kOwnColumns = kColumns / kConsumers;
  // Reads the value of lane 0. The compiler then knows that all lanes have the same value.
  const int warp_of_block = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0),
            group = warp_of_block / 4 - 1, warp = warp_of_block % 4, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_row = group * 64 + warp * 16, own_elem = (group * 4 + warp) * 16 * kOwnColumns;
  float* const own_d_q = shared.d_q + own_elem;
  T* const own_space = reinterpret_cast<T*>(own_d_q);  // d_q, d_k and d_v are rounded here before they are stored
  int stage = 0, parity = 0, blocks = 0, sent = 0, copied = 0;
  for_each_taken_task(shared, [&](const Task& task) {
    const int first_row = task.k0 + own_row;
    Accumulator<kColumns> d_k, d_v;
    FragmentA p[kQueries / 16];
    d_k.clear();
    d_v.clear();
    int held = -1;                              // the stage that outstanding products read, or -1
    int previous_member = -1, previous_q0 = 0;  // the previous block of queries; its number is `blocks` − 1
    // Starts d_q of the previous block. If the task has no previous block yet, the product is meaningless, and no code
    // uses it. A branch around the product would make the compiler wait for all products.
    const auto start_previous = [&](Accumulator<kOwnColumns>& d_q) {
      const int buffer = (blocks - 1) & 1;
      if (previous_member >= 0) wait_for(&shared.d_s_full[buffer], (blocks - 1) >> 1 & 1);
      start_query_gradients(d_q, shared.d_s[buffer], shared.k, group);
    };
    const auto hand_on_previous = [&](Accumulator<kOwnColumns>& d_q) {
      const int member = previous_member, q0 = previous_q0;
      release(&shared.d_s_empty[(blocks - 1) & 1]);
      wait_for(&shared.d_q_empty, (sent & 1) ^ 1);
      if (tasks_after(heads, task, q0) > 0) {
#pragma unroll
        for (int n = 0; n < kOwnColumns / 8; ++n) {
          reinterpret_cast<float4*>(own_d_q)[n * kWarp + lane] =
              make_float4(d_q.at[n][0], d_q.at[n][1], d_q.at[n][2], d_q.at[n][3]);
        }
        publish_tiles();
        release(&shared.d_q_full[sent++ & 1]);
        return;
      }
      if (tasks_before(heads, task, q0) > 0) {
        wait_for(&shared.sums_full, copied++ & 1);
        const auto* const sums = reinterpret_cast<const float4*>(shared.sums + opaque(own_elem)) + opaque(lane);
#pragma unroll
        for (int n = 0; n < kOwnColumns / 8; ++n) {
          const float4 sum = sums[n * kWarp];
          d_q.at[n][0] += sum.x;
          d_q.at[n][1] += sum.y;
          d_q.at[n][2] += sum.z;
          d_q.at[n][3] += sum.w;
        }
        finish_reads();
        arrive(&shared.sums_empty);
      }
      const int query = q0 + warp * 16, column = group * kOwnColumns;
      store_product(d_q, own_space, 16 * 64, heads.query(at.d_qkv, task.begin + query, task.head + member) + column,
                    opaque(heads.width), task.length - query, heads.head_dim - column, [&](int) { return at.scale; });
      __syncwarp();
    };
    for_each_query_block(heads, task, [&](int member, int q0) {
      const int now = stage, buffer = blocks & 1;
      wait_for(&shared.full[now], parity);
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
      Accumulator<kQueries> s, d_p;
      start_transposed(s, shared.k, group * 64, shared.q[now]);
      wait_for_products<1>(d_k, d_v);  // until no product reads p or the stage `held`
      if (held >= 0) arrive(&shared.empty[held]);
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
        const int own_lane = opaque(lane);
#pragma unroll
        for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int query = q0 + n * 8 + own_lane % 4 * 2 + e % 2,
                      ahead = query - (first_row + e / 2 * 8 + own_lane / 4);
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
      wait_for(&shared.d_s_empty[buffer], (blocks >> 1 & 1) ^ 1);
      T* const d_s = shared.d_s[buffer] + group * 64 * kQueries;
      const int own_lane = opaque(lane);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint32_t*>(
              d_s + SwizzledRows::at(warp * 16 + half * 8 + own_lane / 4, n * 8 + own_lane % 4 * 2)) =
              pack_two<T>(d_p.at[n][2 * half], d_p.at[n][2 * half + 1]);
        }
      }
      publish_tiles();
      release(&shared.d_s_full[buffer]);
      Accumulator<kOwnColumns> d_q;
      start_previous(d_q);
      start_sum(d_v, p, shared.d_o[now]);
      meet(1 + group, kGroupThreads);  // all warps of this consumer have stored their dS
      start_sum(d_k, d_s, shared.q[now]);
      wait_for_products<2>(d_q);
      if (previous_member >= 0) hand_on_previous(d_q);
      ++blocks;
      previous_member = member;
      previous_q0 = q0;
    });
    wait_for_products<0>(d_k, d_v);
    arrive(&shared.empty[held]);
    Accumulator<kOwnColumns> d_q;
    start_previous(d_q);
    wait_for_products<0>(d_q);
    release(&shared.own_empty);
    hand_on_previous(d_q);
    wait_for(&shared.d_q_empty, (sent & 1) ^ 1);  // until own_space is free
    const int64_t row = int64_t{task.begin} + first_row;
    const int kv_head = task.head / heads.group, rows = task.length - first_row;
    store_product(d_k, own_space, 16 * 64, heads.key(at.d_qkv, row, kv_head), heads.width, rows, heads.head_dim,
                  [&](int) { return at.scale; });
    __syncwarp();
    store_product(d_v, own_space, 16 * 64, heads.value(at.d_qkv, row, kv_head), heads.width, rows, heads.head_dim,
                  [](int) { return 1.0f; });
    __syncwarp();
  });
}

constexpr int kDeltaLanes = 16, kDeltaThreads = 256;

// Computes deltas[row, head] = Σ d_o∘o over a head's elements, for num_heads heads, from first_head on. 16 lanes
// compute one delta. Each lane reads 8 elements of d_o and 8 of o. The kernel also sets the num_counts integers of
// `counts` to zero: the counts of tasks, and next_task. Each thread sets at most one integer. There are enough threads
// for this: 16 per delta, and at least as many deltas as integers.
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    tma_deltas_kernel(const T* __restrict__ o, const T* __restrict__ d_o, int channels, int head_dim, int first_head,
                      int num_heads, int count, float* __restrict__ deltas, int* __restrict__ counts, int num_counts) {
  const int thread = static_cast<int>(blockIdx.x) * kDeltaThreads + static_cast<int>(threadIdx.x),
            number = thread / kDeltaLanes, column = static_cast<int>(threadIdx.x) % kDeltaLanes * 8;
  if (thread < num_counts) counts[thread] = 0;
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

template <typename T, int kColumns>
__global__ void __launch_bounds__(kTaskThreads, 1)
    tma_backward_kernel(const __grid_constant__ CUtensorMap own, const __grid_constant__ CUtensorMap queries,
                        const __grid_constant__ CUtensorMap d_o, Arrays<T> at, Heads heads) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<T, kColumns>*>(memory);
  if (threadIdx.x == 0) {
    // At `empty` and `sums_empty` all lanes arrive, because all lanes read. If only one arrived after a __syncwarp,
    // compute-sanitizer's racecheck would report a race with the reads of the other lanes.
    init_barrier(&shared.own_full, 1);
    init_barrier(&shared.own_empty, kConsumerWarps + 3);  // 3: the producer's warps that read the task
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(&shared.full[stage], 1 + kWarp);
      init_barrier(&shared.empty[stage], kConsumers * kGroupThreads);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(&shared.d_s_full[i], kConsumerWarps);
      init_barrier(&shared.d_s_empty[i], kConsumerWarps);
      init_barrier(&shared.d_q_full[i], kConsumerWarps);
    }
    init_barrier(&shared.d_q_empty, 1);
    init_barrier(&shared.sums_full, 1);
    init_barrier(&shared.sums_empty, kConsumers * kGroupThreads);
    publish_barriers();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < 4) {
    Registers<24, 240>::give_back();
    if (warp == 0) copy_tiles(shared, own, queries, d_o, at, heads);
    if (warp == 1) copy_sums(shared, at, heads);
    if (warp >= 2) add_parts(shared, at, heads, warp % 2);
  } else {
    Registers<24, 240>::take();
    consume(shared, at, heads);
  }
}

// Returns how many elements of the scratch to reserve per query head: a delta per row, a count per block of queries,
// and one element for next_task. A launch has only one next_task, so a few reserved elements stay unused.
int64_t rows_of_scratch(int64_t num_rows) {
  return num_rows + num_rows / kQueries + 1;
}

}  // namespace

bool tma_attention_backward_can(const Context& context, const Kernels::AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  return supports_tma(context, call.qkv, shape, call.dropout) &&
         rows_of_scratch(call.qkv.shape[0]) * (shape.num_heads / shape.kv_heads()) <= Context::scratch_elems<float>() &&
         (shape.head_dim > 64 || fills_multiprocessors(context, call.qkv, call.starts, shape.kv_heads()));
}

void tma_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  const AttentionShape& shape = call.shape;
  const Heads heads = Heads::of(shape, call.starts);
  const CUtensorMap own = map_of_heads(call.qkv, heads_of_row(shape), shape.head_dim, call.qkv.shape[1], kTaskRows),
                    queries = map_of_heads(call.qkv, heads_of_row(shape), shape.head_dim, call.qkv.shape[1], kQueries),
                    own_d_o = map_of_heads(call.d_o, shape.num_heads, shape.head_dim, call.d_o.shape[1], kQueries);
  const auto num_rows = static_cast<int>(call.qkv.shape[0]),
             blocks = static_cast<int>(num_blocks(num_rows, kTaskRows, heads.num_sequences)),
             sums_of_head = std::max(0, (num_rows - kTaskRows + kQueries - 1) / kQueries);
  with_head_tiles(call.qkv.dtype, shape.head_dim, [&](auto zero, auto columns) {
    using T = decltype(zero);
    using Tiles = Shared<T, columns>;
    auto* const kernel = tma_backward_kernel<T, columns>;
    allow_shared(kernel, sizeof(Tiles));
    const int together = heads_at_once(rows_of_scratch(num_rows), heads.num_heads, heads.group, sizeof(float));
    for (int first = 0; first < heads.num_heads; first += together) {
      const int count = std::min(heads.num_heads - first, together), kv_heads = count / heads.group,
                deltas = num_rows * count, num_counts = count * sums_of_head + 1;  // + 1: next_task
      auto* const counts = reinterpret_cast<int*>(context.scratch_of<float>() + deltas);
      tma_deltas_kernel<<<blocks_for(deltas, kDeltaThreads / kDeltaLanes), kDeltaThreads, 0, context.stream>>>(
          data_of<T>(call.o), data_of<T>(call.d_o), heads.channels, heads.head_dim, first, count, deltas,
          context.scratch_of<float>(), counts, num_counts);
      check_launch("tma_deltas_kernel");
      const Arrays<T> at{data_of<float>(call.log_sum_exp),
                         context.scratch_of<float>(),
                         data_of<float>(call.workspace),
                         counts,
                         counts + num_counts - 1,
                         data_of<T>(call.d_qkv),
                         first,
                         count,
                         blocks,
                         sums_of_head,
                         std::clamp(heads.num_kv_heads * 7 / 8 - first / heads.group, 0, kv_heads),
                         1 / std::sqrt(static_cast<float>(shape.head_dim))};
      const auto grid = static_cast<unsigned>(std::min(context.num_multiprocessors, blocks * kv_heads));
      kernel<<<grid, kTaskThreads, sizeof(Tiles), context.stream>>>(own, queries, own_d_o, at, heads);
      check_launch("tma_backward_kernel");
    }
  });
}

}  // namespace tessera::cuda
