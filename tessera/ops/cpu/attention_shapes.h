// The layout of a row of qkv, and the division of attention into tasks for threads.
#pragma once

#include <span>
#include <vector>

#include "tessera/ops/kernels.h"

namespace tessera::cpu {

// Element offsets of a query head, and of its keys and values, in a row of qkv [N, W].
struct HeadOffsets {
  int64_t q, k, v;
  HeadOffsets(const AttentionShape& shape, int64_t head) {
    const int64_t d = shape.head_dim, kv_head = head / queries_per_kv_head(shape);
    const bool interleaved = shape.layout == QkvLayout::interleaved;
    q = interleaved ? head * 3 * d : head * d;
    k = interleaved ? q + d : shape.channels() + kv_head * d;
    v = k + (interleaved ? d : shape.kv_channels());
  }
  // H / K: the number of query heads that share one head of keys and values.
  static int64_t queries_per_kv_head(const AttentionShape& shape) { return shape.num_heads / shape.kv_heads(); }
};

// The first position that the query at position `query` sees. `window` is AttentionShape's; 0 means no limit.
inline int64_t first_visible(int64_t query, int64_t window) {
  return window > 0 && query >= window ? query - window + 1 : 0;
}

// The ALiBi slope of a head; 0 if the model has no position bias.
inline float alibi_slope(const AttentionShape& shape, int64_t head) {
  return shape.alibi_slopes ? shape.alibi_slopes.as<float>()[head] : 0.0f;
}

// Splits a batch of sequences into tasks. The tasks of the longest sequence come first, so threads finish at about the
// same time. Each call of plan() reuses the memory of the previous call.
class AttentionTasks {
 public:
  struct Task {
    int64_t begin, length;  // the sequence's first row and number of rows
    int64_t head, block;    // the last block of a sequence comes first: without a window, it sees the most keys
  };

  // Divides each sequence into blocks of `block_rows` rows (0: the sequence is one block). Plans one task for each head
  // of each block.
  void plan(View starts /*[B+1] i32*/, int64_t num_rows, int64_t num_heads, int64_t block_rows);
  int64_t count() const { return first_task_.back(); }
  Task operator[](int64_t index) const;

 private:
  std::span<const int32_t> starts_;
  int64_t num_heads_ = 0;
  std::vector<int32_t> order_;       // sequences by decreasing length
  std::vector<int64_t> first_task_;  // [i]: the first task of order_[i]; the last entry is the number of tasks
};

}  // namespace tessera::cpu
