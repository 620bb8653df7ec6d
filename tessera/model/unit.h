// Units: the granules of gathering and freeing. A model is one root (embedding, final norm, tied head) and a list of
// blocks. Units know one device and full parameters; ranks and shards are the engine's business.
//
// Letters: B sequences, N tokens, C channels, H heads, V vocabulary, M rows with loss, P elements of a unit.
#pragma once

#include <array>
#include <string>

#include "tessera/device/stack.h"
#include "tessera/model/parameter_table.h"
#include "tessera/ops/kernels.h"

namespace tessera {

// A micro-batch on the device: its real tokens end to end, no padding.
struct Batch {
  View ids;          // [N] i32
  View starts;       // [B+1] i32
  View target_rows;  // [M] i32, ascending: the rows that carry loss
  View targets;      // [M] i32: the token each of them must predict
  View row_ids;      // [N] i64: a number for each token that stays the same however the step is cut into batches
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
};

// Keys and values of the sequences being generated.
struct KvCache {
  std::vector<View> keys, values;  // per block: [rows, C]
  View starts;                     // [B] i32: first row of each sequence
  View lengths;                    // [B] i32: rows in use; while decoding only
  bool decoding = false;           // false: a prompt is being read; true: one new token a sequence
};

// What a unit needs besides its parameters.
struct Frame {
  Kernels& ops;
  Stack& stack;
  const Batch& batch;
  DType dtype;                           // of activations
  bool training = false;                 // dropout on
  uint64_t dropout_seed = 0;             // of the run; the row ids differ from update to update
  bool fresh_gradients = false;          // those of weights that decay: a unit's first product writes them
  KvCache* cache = nullptr;              // while generating
  int64_t head_chunk_bytes = 128 << 20;  // of logits that exist at a time, at least
  bool large_head_chunks = false;        // or a share of what is on the stack, where that is more (root.cc)
  bool stands_for_smaller = false;       // the memory must suffice for every batch within this one's sizes (root.cc)

  // The same frame with other kernels.
  Frame with(Kernels& others) const {
    return {.ops = others,
            .stack = stack,
            .batch = batch,
            .dtype = dtype,
            .training = training,
            .dropout_seed = dropout_seed,
            .fresh_gradients = fresh_gradients,
            .cache = cache,
            .head_chunk_bytes = head_chunk_bytes,
            .large_head_chunks = large_head_chunks,
            .stands_for_smaller = stands_for_smaller};
  }
  View push(int64_t rows, int64_t columns) { return stack.push({rows, columns}, dtype); }
  // Statistics keep the precision that 16-bit activations lack.
  View push_stats(int64_t rows, int64_t columns) {
    return stack.push({rows, columns}, dtype == DType::f64 ? DType::f64 : DType::f32);
  }
};

// The views a forward pass keeps on the stack for its backward pass; each unit names its own by structured bindings.
using SavedViews = std::array<View, 8>;

class Unit {
 public:
  Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;
  const std::string& name() const { return name_; }  // "root", "block.0", …
  const ParameterTable& table() const { return table_; }

 protected:
  std::string name_;
  ParameterTable table_;
};

class Block : public Unit {
 public:
  using Unit::Unit;
  // y [N, C] from x [N, C]; y may be empty when only the saved views are wanted. With `saved` the views for backward
  // stay on the stack above y; without, nothing stays.
  virtual void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const = 0;
  // d_x [N, C] from d_y [N, C]; adds to the gradients g, which hold zeros but for the weights where they are fresh. `x`
  // is what forward got. Leaves the stack as it was.
  virtual void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                        View d_y, View d_x) const = 0;
};

// Attention of a block, with the cache's part in it: o [N, C] from qkv [N, 3C]; log_sum_exp [N, H] for backward.
void attend(Frame& frame, int64_t layer, View qkv, const AttentionShape& shape, const Dropout& dropout, View o,
            View log_sum_exp);

}  // namespace tessera
