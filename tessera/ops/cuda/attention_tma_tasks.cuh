// The tasks of attention's backward pass with TMA (attention_tma_backward.cu). Each task has 128 keys. A block of
// queries may see the keys of several tasks. Each of these tasks then adds its part of the queries' gradients to sums
// in memory. This file defines the order of these additions.
//
// A good order has two effects: tasks rarely wait for the additions of other tasks, and the sums that are in use at the
// same time fit into the L2 cache. There are two orders:
// - "Last keys first", for most heads. The task with the last keys of a sequence and head starts first and adds first.
//   Each task goes through the queries that see its keys, in ascending order. A task with earlier keys begins with
//   earlier queries. It therefore reaches each block of queries later than the tasks with later keys, which add before
//   it. All tasks of a head run at about the same time, so only a few heads have sums in use.
// - "First keys first", for the last eighth of the heads of keys and values. With the order "last keys first", the
//   longest tasks of a head start last, so some multiprocessors would be idle at the end of the launch. With "first
//   keys first", the tasks with the first keys start first and add first. They are the longest tasks, because the most
//   queries see the first keys. Each task goes through its queries in descending order.
#pragma once

#include "tessera/ops/cuda/attention_tma.cuh"

namespace tessera::cuda {

inline constexpr int kQueries = 64;  // queries that a task loads at a time: one block of queries

// The arrays of a launch. The first 128 queries of a sequence see the keys of only one task, so they need no sums.
// index_of_sum() gives the place in `sums` and `counts` for each later block of queries. The elements of a sum are in
// the order of the consumers' registers: [consumer warp][group of 8 columns][lane][4 elements].
template <typename T>
struct Arrays {
  const float* log_sum_exp;  // [N, H]
  const float* deltas;       // [N, num_heads], of the heads from first_head on
  float* sums;               // [num_heads, sums_of_head, 64 · columns]
  int* counts;               // [num_heads, sums_of_head]: the number of tasks that have added their parts
  int* next_task;
  T* d_qkv;
  int first_head, num_heads, num_blocks, sums_of_head;
  int last_keys_first;  // how many of the launch's heads of keys and values have the order "last keys first"
  float scale;
  // `row` is the first row of a block of queries, counted over all sequences.
  __device__ int64_t index_of_sum(int head, int row) const {
    return int64_t{head - first_head} * sums_of_head + (row - kTaskRows) / kQueries;
  }
};

// A task has the keys [k0, k0 + 128) of a sequence and of one head of keys and values. `head` is the first of the query
// heads that use these keys.
struct Task {
  int begin, length, k0, head;  // begin, length: the sequence's first row and number of rows; head < 0: no more tasks
  bool first_keys_first;        // the order of additions
};

// Calls body(member, q0) for each query head task.head + member that uses the task's keys, and for each block of
// queries [q0, q0 + 64) that sees some of these keys.
template <typename Body>
__device__ inline void for_each_query_block(const Heads& heads, const Task& task, const Body& body) {
  const int end = heads.end_of_queries(min(task.k0 + kTaskRows, task.length) - 1, task.length),
            last = (end - 1 - task.k0) / kQueries * kQueries;
  for (int member = 0; member < heads.group; ++member) {
    for (int i = 0; i <= last; i += kQueries) body(member, task.k0 + (task.first_keys_first ? last - i : i));
  }
}
// The queries of the block that begins at q0 see the keys of several tasks. These functions return how many of these
// tasks have earlier keys than `task`, and how many have later keys.
__device__ inline int tasks_of_earlier_keys(const Heads& heads, const Task& task, int q0) {
  return (task.k0 - heads.first_block(q0, kTaskRows)) / kTaskRows;
}
__device__ inline int tasks_of_later_keys(const Task& task, int q0) {
  return q0 / kTaskRows - task.k0 / kTaskRows;
}
// These functions return how many tasks add to the gradients of the block at q0 before `task` does, and how many tasks
// add after it.
__device__ inline int tasks_before(const Heads& heads, const Task& task, int q0) {
  return task.first_keys_first ? tasks_of_earlier_keys(heads, task, q0) : tasks_of_later_keys(task, q0);
}
__device__ inline int tasks_after(const Heads& heads, const Task& task, int q0) {
  return task.first_keys_first ? tasks_of_later_keys(task, q0) : tasks_of_earlier_keys(heads, task, q0);
}
// Waits until `tasks` tasks have added their parts to the sum that `count` belongs to. The copy engine may then read or
// change this sum.
__device__ inline void wait_for_tasks(const int* count, int tasks) {
  for (int done = 0; done < tasks;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(done) : "l"(count) : "memory");
  }
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
__device__ inline void count_task(int* count) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}

// Finds task `number` of the launch. All lanes of a warp must call it. If the number belongs to no task, the result has
// head < 0.
template <typename T>
__device__ inline Task find_task(const Arrays<T>& at, const Heads& heads, int number) {
  const int first_keys_first = at.num_heads / heads.group - at.last_keys_first;  // the number of heads with this order
  Task task{0, 0, 0, -1, number >= at.last_keys_first * at.num_blocks};
  RowBlock block;
  int kv_head;
  if (task.first_keys_first) {  // long tasks come first, see find_longest_block()
    number -= at.last_keys_first * at.num_blocks;
    block = find_longest_block(heads.starts, heads.num_sequences, kTaskRows, number / first_keys_first);
    kv_head = at.last_keys_first + number % first_keys_first;
  } else {  // sequence by sequence, and head by head in a sequence
    block = find_block(heads.starts, heads.num_sequences, kTaskRows, number / at.last_keys_first);
    const int blocks = max(1, (block.length + kTaskRows - 1) / kTaskRows),
              of_sequence = block.index * at.last_keys_first + number % at.last_keys_first;
    kv_head = of_sequence / blocks;
    block.index = of_sequence % blocks;
  }
  if (!block.found) return task;
  task.begin = block.begin;
  task.length = block.length;
  task.k0 = ((block.length - 1) / kTaskRows - block.index) * kTaskRows;
  task.head = at.first_head + kv_head * heads.group;
  return task;
}

}  // namespace tessera::cuda
