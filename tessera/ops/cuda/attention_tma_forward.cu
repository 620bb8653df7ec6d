#include <cmath>
#include <limits>

#include "tessera/ops/cuda/attention.h"
#include "tessera/ops/cuda/attention_tma.cuh"

namespace tessera::cuda {
namespace {

constexpr int kKeys = 128;  // keys in a block of keys; the producer loads one block at a time

// A task: a query head, and a block of 128 queries of a sequence. `begin` and `length` are the sequence's first row and
// number of rows. `index` is the block's number in the sequence. The producer writes the task, and the consumers read
// it.
struct Task {
  int begin, length, index, head;  // head < 0: there are no more tasks
};

template <typename T, int kColumns>
struct Shared {
  HeadTile<T, kTaskRows, kColumns> q, o;
  HeadTile<T, kKeys, kColumns> k[2], v[2];
  Barrier q_full, q_empty, k_full[2], k_empty[2], v_full[2], v_empty[2];
  Task task;
};

// s holds products q·k of kKeys keys from k0 on. Replaces them by exp(score − maximum). `maximum` is the row's greatest
// score so far. Sets `correction` to the factor that adapts each row's earlier results to the new maximum. For a
// task, the kernel calls this function for the blocks of keys in descending order. For each row, the first of
// these blocks contains the query's own position, so the row's maximum is finite from the first call on.
template <bool kBiased>
__device__ inline void softmax_block(Accumulator<kKeys>& s, const Scores& scores, int first_row, int k0, int window,
                                     Softmax& softmax, float (&correction)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if constexpr (kBiased) {
    const float first_bias = scores.bias(k0 + lane % 4 * 2);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float bias = fmaf(scores.slope, static_cast<float>(n * 8 + e % 2), first_bias);
        s.at[n][e] = fmaf(s.at[n][e], scores.scale, bias);
      }
    }
  }
  const float scale = kBiased ? 1.0f : scores.scale;
  if (needs_mask(first_row, k0, kKeys, window)) {
    mask_scores(s, first_row, k0, window, -std::numeric_limits<float>::infinity());
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = fmaxf(s.at[0][2 * half], s.at[0][2 * half + 1]);
#pragma unroll
    for (int n = 1; n < kKeys / 8; ++n) most = fmaxf(most, fmaxf(s.at[n][2 * half], s.at[n][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    most = fmaxf(softmax.maximum[half], most * scale);
    correction[half] = fast_exp2(softmax.maximum[half] - most);
    softmax.maximum[half] = most;
    float sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s.at[n][2 * half + e];
        x = fast_exp2(fmaf(x, scale, -most));
        sum[e] += x;
      }
    }
    softmax.sum[half] = fmaf(softmax.sum[half], correction[half], sum[0] + sum[1]);
  }
}

// Calls body(block, head) for the tasks of this thread block. All lanes of a warp must call for_each_task(). The tasks
// are divided among the thread blocks in rounds, longer tasks first. In each round, a thread block gets at most one
// task. Every second round assigns the tasks in reverse order. Therefore all thread blocks get about the same work.
template <typename Body>
__device__ inline void for_each_task(const Heads& heads, int num_blocks, const Body& body) {
  const int grid = static_cast<int>(gridDim.x), own = static_cast<int>(blockIdx.x),
            total = heads.num_heads * num_blocks;
  for (int first = 0, round = 0; first < total; first += grid, ++round) {
    const int number = first + (round % 2 == 0 ? own : grid - 1 - own);
    const RowBlock block = find_longest_block(heads.starts, heads.num_sequences, kTaskRows, number / heads.num_heads);
    if (block.found) body(block, number % heads.num_heads);
  }
}

template <typename T, int kColumns>
__device__ inline void produce(Shared<T, kColumns>& shared, const CUtensorMap& map, const Heads& heads,
                               int num_blocks) {
  const bool leads = threadIdx.x == 0;
  int count = 0, tasks = 0;  // blocks of keys so far, and tasks so far
  for_each_task(heads, num_blocks, [&](const RowBlock& block, int head) {
    const int q0 = block.index * kTaskRows, kv_head = head / heads.group;
    for (int k0 = q0; k0 >= heads.first_block(q0, kKeys); k0 -= kKeys, ++count) {
      const int stage = count & 1, before = (count >> 1 & 1) ^ 1;
      wait_for(&shared.k_empty[stage], before);
      if (leads) {
        arrive_expecting(&shared.k_full[stage], sizeof(shared.k[0]));
        copy_tile(map, &shared.k_full[stage], shared.k[stage], place_of_key(heads, kv_head), block.begin + k0);
      }
      if (k0 == q0) {
        wait_for(&shared.q_empty, (tasks & 1) ^ 1);
        if (leads) {
          shared.task = {block.begin, block.length, block.index, head};
          arrive_expecting(&shared.q_full, sizeof(shared.q));
          copy_tile(map, &shared.q_full, shared.q, place_of_query(heads, head), block.begin + q0);
        }
      }
      wait_for(&shared.v_empty[stage], before);
      if (leads) {
        arrive_expecting(&shared.v_full[stage], sizeof(shared.k[0]));
        copy_tile(map, &shared.v_full[stage], shared.v[stage], place_of_value(heads, kv_head), block.begin + k0);
      }
    }
    ++tasks;
  });
  wait_for(&shared.q_empty, (tasks & 1) ^ 1);
  if (leads) {
    shared.task.head = -1;
    arrive(&shared.q_full);
  }
}

template <typename T, int kColumns, bool kBiased>
__device__ inline void consume(Shared<T, kColumns>& shared, const Heads& heads, float scale, T* o_out,
                               float* log_sum_exp) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1, warp = static_cast<int>(threadIdx.x) / kWarp % 4,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own_row = group * 64 + warp * 16;
  // The two consumers take turns: while one consumer computes exponentials, the other uses the tensor cores.
  const auto begin_turn = [&] { meet(1 + group, kConsumers * kGroupThreads); };
  const auto end_turn = [&] { announce(2 - group, kConsumers * kGroupThreads); };
  if (group == 1) end_turn();

  for (int tasks = 0, count = 0;; ++tasks) {
    wait_for(&shared.q_full, tasks & 1);
    const Task task = read_task(shared.task);
    if (task.head < 0) return;
    const int q0 = task.index * kTaskRows, first_row = q0 + own_row, first_block = heads.first_block(q0, kKeys);
    const Scores scores(scale, heads.slope(task.head));
    Accumulator<kKeys> s;
    Accumulator<kColumns> o;
    FragmentA p[kKeys / 16];
    o.clear();
    Softmax softmax;
    softmax.maximum[0] = softmax.maximum[1] = -std::numeric_limits<float>::infinity();
    softmax.sum[0] = softmax.sum[1] = 0;
    float correction[2];

    wait_for(&shared.k_full[count & 1], count >> 1 & 1);
    begin_turn();
    start_transposed(s, shared.q, group * 64, shared.k[count & 1]);
    end_turn();
    wait_for_products<0>(s);
    release(&shared.k_empty[count & 1]);
    softmax_block<kBiased>(s, scores, first_row, q0, heads.window, softmax, correction);
    round_to_left<T>(s, p);
    for (int k0 = q0 - kKeys; k0 >= first_block; k0 -= kKeys, ++count) {
      const int stage = count & 1, next = (count + 1) & 1;
      wait_for(&shared.k_full[next], (count + 1) >> 1 & 1);
      begin_turn();
      start_transposed(s, shared.q, group * 64, shared.k[next]);
      wait_for(&shared.v_full[stage], count >> 1 & 1);
      start_sum(o, p, shared.v[stage]);
      end_turn();
      wait_for_products<1>(s);
      release(&shared.k_empty[next]);
      softmax_block<kBiased>(s, scores, first_row, k0, heads.window, softmax, correction);
      wait_for_products<0>(o);
      release(&shared.v_empty[stage]);
      round_to_left<T>(s, p);
      // For most blocks of keys, no maximum changes, and the earlier results need no correction.
      if (__any_sync(kAllLanes, correction[0] < 1 || correction[1] < 1)) {
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) o.at[n][e] *= correction[e / 2];
        }
      }
    }
    release(&shared.q_empty);
    wait_for(&shared.v_full[count & 1], count >> 1 & 1);
    start_sum(o, p, shared.v[count & 1]);
    wait_for_products<0>(o);
    release(&shared.v_empty[count & 1]);
    ++count;

    const int rows = task.length - first_row;
    const int64_t row = int64_t{task.begin} + first_row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = softmax.sum[half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      softmax.sum[half] = sum;
      const int r = half * 8 + lane / 4;
      if (log_sum_exp && lane % 4 == 0 && r < rows) {
        log_sum_exp[(row + r) * heads.num_heads + task.head] = (softmax.maximum[half] + log2f(sum)) * kLn2;
      }
    }
    store_product(o, shared.o.parts[0] + own_row * 64, kTaskRows * 64,
                  o_out + row * heads.channels + task.head * heads.head_dim, heads.channels, rows, heads.head_dim,
                  [&](int half) { return 1.0f / softmax.sum[half]; });
    __syncwarp();  // before the next task's results overwrite the tile shared.o
  }
}

template <typename T, int kColumns, bool kBiased>
__global__ void __launch_bounds__(kTaskThreads, 1)
    tma_forward_kernel(const __grid_constant__ CUtensorMap map, Heads heads, int num_blocks, float scale, T* o,
                       float* log_sum_exp) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<T, kColumns>*>(memory);
  if (threadIdx.x == 0) {
    init_barrier(&shared.q_full, 1);
    init_barrier(&shared.q_empty, kConsumerWarps);
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
    Registers<40, 232>::give_back();
    if (threadIdx.x < kWarp) produce(shared, map, heads, num_blocks);
  } else {
    Registers<40, 232>::take();
    consume<T, kColumns, kBiased>(shared, heads, scale, o, log_sum_exp);
  }
}

}  // namespace

bool tma_attention_forward_can(const Context& context, const Kernels::AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  // For heads of up to 64 elements, the wgmma kernels are faster in two cases: with position biases
  // (ALiBi), and if fills_multiprocessors() returns false, because the tasks are too few or the sequences too short.
  return supports_tma(context, call.qkv, shape, call.dropout) &&
         (shape.head_dim > 64 ||
          (!shape.alibi_slopes && fills_multiprocessors(context, call.qkv, call.starts, shape.num_heads)));
}

void tma_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  const AttentionShape& shape = call.shape;
  const Heads heads = Heads::of(shape, call.starts);
  const CUtensorMap map = map_of_heads(call.qkv, heads_of_row(shape), shape.head_dim, call.qkv.shape[1], kKeys);
  const auto blocks = static_cast<int>(num_blocks(call.qkv.shape[0], kTaskRows, heads.num_sequences));
  const auto grid = static_cast<unsigned>(std::min(context.num_multiprocessors, blocks * heads.num_heads));
  with_head_tiles(call.qkv.dtype, shape.head_dim, [&](auto zero, auto columns) {
    using T = decltype(zero);
    const auto launch = [&](auto biased) {
      using Tiles = Shared<T, columns>;
      auto* const kernel = tma_forward_kernel<T, columns, biased>;
      allow_shared(kernel, sizeof(Tiles));
      kernel<<<grid, kTaskThreads, sizeof(Tiles), context.stream>>>(
          map, heads, blocks, 1 / std::sqrt(static_cast<float>(shape.head_dim)), data_of<T>(call.o),
          data_of<float>(call.log_sum_exp));
    };
    if (heads.slopes) return launch(std::true_type());
    launch(std::false_type());
  });
  check_launch("tma_forward_kernel");
}

}  // namespace tessera::cuda
