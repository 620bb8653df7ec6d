// The tasks of attention's backward pass with TMA, and the order in which they add their parts of the queries'
// gradients (attention_tma_backward.cu).
//
// The order must not make tasks wait, and the sums that are in use should fit into the L2 cache. Most heads have the
// order "last keys first". Their tasks start in the order of the additions, and each goes through its queries in
// ascending order. A task with earlier keys has more queries, so it reaches each block of queries after the tasks
// before it. All tasks of a head run at about the same time. But the longest tasks of a head start last, and at the end
// of the launch some multiprocessors would be idle. Therefore the last heads have the order "first keys first", with
// the queries in descending order. There, the longest tasks of all these heads start first.
#pragma once

#include "tessera/ops/cuda/attention_tma.cuh"

namespace tessera::cuda {

inline constexpr int kQueries = 64;  // queries that a task loads at a time: a block

// Only blocks of queries from row 128 of a sequence on see keys of several tasks, so only they have sums. Sums have the
// order of the consumers' registers: [consumer warp][8 columns][lane][4].
template <typename T>
struct Arrays {
  const float* log_sum_exp;  // [N, H]
  const float* deltas;       // [N, num_heads], of the heads from first_head on
  float* sums;               // [num_heads, sums_of_head, 64 · columns]
  int* counts;               // [num_heads, sums_of_head]: the number of tasks that have added their parts
  int* next_task;
  T* d_qkv;
  int first_head, num_heads, num_blocks, sums_of_head;
  int last_keys_first;  // the number of heads of keys and values, of the launch, that have the order "last keys first"
  float scale;
  // `row` is the first of a block.
  __device__ int64_t index_of_sum(int head, int row) const {
    return int64_t{head - first_head} * sums_of_head + (row - kTaskRows) / kQueries;
  }
};

// The keys [k0, k0 + 128) of a sequence, and the query heads from `head` on that use them.
struct Task {
  int begin, length, k0, head;  // head < 0: there are no more tasks
  bool first_keys_first;        // the order of additions
};

// Calls body(member, q0) for the blocks of queries that see some of the task's keys, for each query head of a group.
template <typename Body>
__device__ inline void for_each_query_block(const Heads& heads, const Task& task, const Body& body) {
  const int end = heads.end_of_queries(min(task.k0 + kTaskRows, task.length) - 1, task.length),
            last = (end - 1 - task.k0) / kQueries * kQueries;
  for (int member = 0; member < heads.group; ++member) {
    for (int i = 0; i <= last; i += kQueries) body(member, task.k0 + (task.first_keys_first ? last - i : i));
  }
}
// The number of tasks with earlier keys, and with later keys, that the queries of the block q0 see.
__device__ inline int tasks_of_earlier_keys(const Heads& heads, const Task& task, int q0) {
  return (task.k0 - heads.first_block(q0, kTaskRows)) / kTaskRows;
}
__device__ inline int tasks_of_later_keys(const Task& task, int q0) {
  return q0 / kTaskRows - task.k0 / kTaskRows;
}
// The number of tasks that add before this one to the gradients of the block q0, and of those that add after it.
__device__ inline int tasks_before(const Heads& heads, const Task& task, int q0) {
  return task.first_keys_first ? tasks_of_earlier_keys(heads, task, q0) : tasks_of_later_keys(task, q0);
}
__device__ inline int tasks_after(const Heads& heads, const Task& task, int q0) {
  return task.first_keys_first ? tasks_of_later_keys(task, q0) : tasks_of_earlier_keys(heads, task, q0);
}
// Waits until `tasks` tasks have added their parts. The sums may then be read or changed by the copy engine.
__device__ inline void wait_for_tasks(const int* count, int tasks) {
  for (int done = 0; done < tasks;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(done) : "l"(count) : "memory");
  }
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
__device__ inline void count_task(int* count) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}

// Finds task `number` of the launch. All lanes of a warp must call it. If there is no such task, its head is < 0.
template <typename T>
__device__ inline Task find_task(const Arrays<T>& at, const Heads& heads, int number) {
  const int first_keys_first = at.num_heads / heads.group - at.last_keys_first;  // the number of heads
  Task task{0, 0, 0, -1, number >= at.last_keys_first * at.num_blocks};
  RowBlock block;
  int kv_head;
  if (task.first_keys_first) {  // blocks of keys are counted from the end: the first keys have the most queries
    number -= at.last_keys_first * at.num_blocks;
    block = find_longest_block(heads.starts, heads.num_sequences, kTaskRows, number / first_keys_first);
    kv_head = at.last_keys_first + number % first_keys_first;
  } else {  // all tasks of a sequence and head, then those of the next head
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
