// Units of a model. A unit's parameters are gathered and freed together. A model has a root (the embedding), a list of
// blocks, and a head. A tied head is a part of the root. A unit computes on one device with complete parameters. The
// engine handles ranks and shards.
//
// Letters: B sequences, N tokens, C channels, H heads, V vocabulary, M rows with loss, P elements of a unit. Row t of
// an array [N, …] belongs to token t of the batch.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "tessera/device/stack.h"
#include "tessera/model/parameter_table.h"
#include "tessera/ops/kernels.h"

namespace tessera {

// A micro-batch on the device: its sequences one after the other, without padding between them. In training on a GPU,
// the last sequence may be padding (padded_tokens()).
struct Batch {
  View ids;          // [N] i32
  View starts;       // [B+1] i32: first row of each sequence, then N
  View positions;    // [N] i32: position of each token in its sequence
  View target_rows;  // [M] i32, ascending: the rows with loss
  View targets;      // [M] i32: the token that each of these rows must predict
  View row_ids;      // [N] i64: a number for each token, the same for every division of a step into micro-batches
  int64_t num_tokens = 0, num_sequences = 0, num_targets = 0;
};

// Keys and values of the sequences in generation.
struct KvCache {
  std::vector<View> keys, values;  // one view per block: [rows, K·D] (see AttentionShape)
  View starts;                     // [B] i32: first row of each sequence
  View lengths;                    // [B] i32: rows in use of each sequence; set only while decoding
  bool decoding = false;           // false: reads prompts; true: one new token per sequence
};

// A loss that replaces the cross-entropy of the head.
class OwnLoss {
 public:
  virtual ~OwnLoss() = default;
  // Like Kernels::softmax_cross_entropy(), for the logits [m, V] of the batch's targets [begin, begin + m).
  virtual void compute(View logits, int64_t begin, double d_scale, View loss) = 0;
};

// The parts of a block whose values backward computes again. `mlp`: the outputs of the MLP's first products.
// `attention`: the output of attention, and what only the backward of attention needs.
struct RecomputedParts {
  bool mlp = false, attention = false;
};

// What a unit needs in addition to its parameters.
struct Frame {
  Kernels* ops;
  Stack& stack;
  const Batch& batch;
  DType dtype;                           // of activations
  bool training = false;                 // enables dropout
  uint64_t dropout_seed = 0;             // the same for all updates; their masks differ because row_ids differ
  bool fresh_gradients = false;          // true: the gradients hold no sums yet (see Block::backward)
  bool float8 = false;                   // the products of the blocks' linear layers have factors in 8 bits
  RecomputedParts recomputed = {};       // parts that Block::forward does not keep in `saved`
  KvCache* cache = nullptr;              // set during generation
  View rotations = {};                   // [N, D] rotary angles of the tokens, if the model has rotary positions
  View chunk_row_ids = {};               // [m] i64: row ids of the rows that the head processes; empty elsewhere
  int64_t head_chunk_bytes = 128 << 20;  // limit for the bytes of logits that exist at a time
  bool large_head_chunks = false;        // the limit grows with the bytes on the stack (head.cc)
  bool stands_for_smaller = false;       // use at least the memory that any smaller batch would use (head.cc)
  OwnLoss* own_loss = nullptr;           // null: the cross-entropy

  // The dropout number `site` (0 to 3) of a block. Its rate is 0 outside of training.
  Dropout dropout(double rate, int64_t layer, uint32_t site) const {
    return dropout_at(rate, static_cast<uint32_t>(layer) * 4 + site);
  }
  // `site` is different for each dropout of the model.
  Dropout dropout_at(double rate, uint32_t site) const {
    if (!training || rate == 0) return {};
    return {static_cast<float>(rate), dropout_seed, site, chunk_row_ids ? chunk_row_ids : batch.row_ids};
  }
  View push(int64_t rows, int64_t columns) { return stack.push({rows, columns}, dtype); }
  // Statistics need more precision than 16-bit activations have.
  View push_stats(int64_t rows, int64_t columns) {
    return stack.push({rows, columns}, dtype == DType::f64 ? DType::f64 : DType::f32);
  }
};

// The views that forward keeps on the stack for backward. Their meanings depend on the unit. The views of recomputed
// parts are empty.
using SavedViews = std::array<View, 8>;

// The input of a linear layer: x in the type of activations, or only what products in 8 bits read of it, as `rows` and
// `columns` of Kernels::Quantize. Linear decides which.
struct LinearInput {
  LinearInput(View all) : x(all) {}
  LinearInput(const Float8Matrix& by_rows, const Float8Matrix& by_columns) : rows(by_rows), columns(by_columns) {}

  View x;                      // [N, I] or empty
  Float8Matrix rows, columns;  // for forward, and for the gradient of the weight; or empty
};

class Linear;

class Unit {
 public:
  Unit(std::string name) : name_(std::move(name)) {}
  virtual ~Unit() = default;
  const std::string& name() const { return name_; }  // "root", "block.0", …, "head"
  const ParameterTable& table() const { return table_; }
  void freeze(const std::function<bool(const std::string& name)>& frozen) { table_.freeze(frozen); }
  // The layers that can have adapters. At most 16.
  virtual std::vector<Linear*> linear_layers() { return {}; }
  ParameterTable& table_to_change() { return table_; }

 protected:
  std::string name_;
  ParameterTable table_;
};

class Block : public Unit {
 public:
  // The first random stream for the initial values of a block (Initializer::stream). The root and the head use the
  // streams below 16.
  static uint64_t first_stream(int64_t layer) { return 16 * static_cast<uint64_t>(layer + 1); }

  using Unit::Unit;
  // Computes y [N, C] from x [N, C]. y may be empty if only the saved views are needed. With `saved`, the views for
  // backward stay on the stack. Otherwise the stack is unchanged afterwards.
  virtual void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const = 0;
  // Computes d_x [N, C] from d_y [N, C] and adds to the gradients g of trainable parameters. If gradients are fresh,
  // the gradients of weights with decay have unspecified contents and are overwritten. All other fresh gradients are
  // zeros. `x` is the input of forward. Leaves the stack unchanged.
  virtual void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                        View d_y, View d_x) const = 0;
};

// For a kernel that always sums a gradient, even if nobody needs it. Returns `gradient`, or new space [elems] on the
// stack if `gradient` is empty.
View or_unwanted(Frame& frame, View gradient, int64_t elems, DType dtype);
// Reserves the arrays of a block's two parts. The callables push the arrays of one part each. Arrays of recomputed
// parts are above the arrays of the other parts. Returns the height of the stack between the two.
int64_t push_parts(Frame& frame, const std::function<void()>& push_attention, const std::function<void()>& push_mlp);
// The workspace of Kernels::attention_backward for N tokens: the memory of `unused`, a saved view whose contents are no
// longer needed, or new space on the stack if this memory is empty or too small.
View attention_workspace(Frame& frame, const AttentionShape& shape, int64_t num_tokens, View unused);

// Attention of a block. Reads and writes the frame's cache, if there is one. Computes o [N, H·D] from qkv [N, W] (W and
// D: see AttentionShape). Except while decoding, also computes log_sum_exp [N, H] for backward.
void attend(Frame& frame, int64_t layer, View qkv, const AttentionShape& shape, const Dropout& dropout, View o,
            View log_sum_exp);

}  // namespace tessera
