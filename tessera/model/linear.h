// A linear layer, which may have a LoRA adapter: y = x · weightᵀ + bias + s · dropout(x) · Aᵀ · Bᵀ.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/adapter.h"
#include "tessera/model/unit.h"

namespace tessera {

// Letters: N tokens, I input and O output channels, R the sum of the ranks of the adapters. p and g are the parameters
// and gradients of the unit whose table holds the tensors of the layer.
class Linear {
 public:
  // A weight [out, I] of the table, and its bias [out].
  struct Part {
    std::string weight;
    Initializer weight_init;
    std::string bias;  // empty: no bias
    Initializer bias_init;
    int64_t out = 0;
  };

  Linear() = default;
  // Adds the tensors of all parts to the table. Parts read the same input, and kernels use them as one tensor: the rows
  // of the first part come first, and O is the sum over the parts. All parts have a bias, or none has one.
  Linear(ParameterTable& table, const std::vector<Part>& parts, int64_t in);
  // A layer of tensors that are in the table already. `name`: of the layer.
  Linear(std::string name, ParameterTable::Handle weight, std::optional<ParameterTable::Handle> bias);

  // The names of the weights of all parts.
  std::vector<std::string> weight_names() const;

  // Gives an adapter to each part that `adapter_of` gives one. `number` is different for each layer of the model.
  using AdapterOf = std::function<std::optional<LayerAdapter>(const std::string& layer)>;
  void adapt(ParameterTable& table, const AdapterOf& adapter_of, double dropout, uint32_t number);

  // Throws UsageError if products in 8 bits do not support the sizes of the layer.
  void check_float8(const ParameterTable& table) const;
  // The weight of all parts in its section of the table; first_scale is 0. Nothing if a part of it is quantized.
  std::optional<std::pair<Section, Float8Place>> place8(const ParameterTable& table) const;

  // Whether the layer has an adapter with dropout.
  bool has_dropout() const { return !adapted_.empty() && adapter_dropout_ > 0; }

  // Whether the layer reads its input and the gradient of its output only in 8 bits. Who computes these can then round
  // them, and need not write them in 16 bits.
  bool reads_only_float8(const Frame& frame) const;
  // Reserves stack memory for the input [rows, columns] of forward(), or for the part of it that backward_weight()
  // reads.
  LinearInput push_input(Frame& frame, int64_t rows, int64_t columns) const;
  LinearInput push_input_again(Frame& frame, const ParameterViews& p, int64_t rows, int64_t columns) const;

  // y = epilogue(x · weightᵀ + bias + adapter). preactivation [N, O] receives the argument of the epilogue, or is
  // empty.
  void forward(Frame& frame, const ParameterViews& p, const LinearInput& x, View y, const LinearEpilogue& epilogue = {},
               View preactivation = {}) const;

  // The gradient of a layer's output, and what backward_input() and backward_weight() both need of it.
  struct Upstream {
    View d_y;                              // [N, O]
    View d_u;                              // [N, R]: the gradient of dropout(x) · Aᵀ; empty without an adapter
    Float8Matrix rows = {}, columns = {};  // d_y in 8 bits (Kernels::Quantize); empty if products read d_y
  };
  // Takes memory for all but d_y from the stack.
  Upstream upstream(Frame& frame, const ParameterViews& p, View d_y) const;
  // The matrices in 8 bits of a gradient [rows, columns], for a caller that computes them (reads_only_float8()).
  Upstream push_upstream8(Frame& frame, const ParameterViews& p, int64_t rows, int64_t columns) const;

  // How d_x and the layer's own input follow from the previous layer (Kernels::linear_backward_input).
  struct Previous {
    LinearEpilogue epilogue = {};
    View preactivation = {};  // [N, I] or empty
    View x = {};              // [N, I], receives the input again; or empty
  };
  // Computes d_x [N, I].
  void backward_input(Frame& frame, const ParameterViews& p, const Upstream& d, View d_x,
                      const Previous& previous) const;
  void backward_input(Frame& frame, const ParameterViews& p, const Upstream& d, View d_x) const {
    backward_input(frame, p, d, d_x, {});
  }
  // Adds to the gradients of the weight and of the adapter, or overwrites fresh gradients. A frozen weight has none.
  void backward_weight(Frame& frame, const ParameterViews& p, const ParameterViews& g, const Upstream& d,
                       const LinearInput& x, bool fresh) const;
  void backward_weight(Frame& frame, const ParameterViews& p, const ParameterViews& g, const Upstream& d,
                       const LinearInput& x) const {
    backward_weight(frame, p, g, d, x, frame.fresh_gradients);
  }
  // Instead of backward_weight() with fresh gradients, for a batch without rows.
  void clear_gradients(Frame& frame, const ParameterViews& g) const;
  bool has_bias() const { return has_bias_; }
  // The work of bias_gradients() for this layer. Its d_bias is empty if the bias is frozen, or if there is none.
  BiasGradient bias_gradient(const ParameterViews& g, View d_y) const { return {d_y, bias(g)}; }

 private:
  using Handle = ParameterTable::Handle;
  // The layer of a part, and its adapter: rows [row, row + out) of the output, columns [column, column + rank) of u.
  struct Adapted {
    Handle a = 0, b = 0;
    int64_t row = 0, column = 0;
    double scale = 1;
  };

  bool in_float8(const Frame& frame) const { return in_block_ && frame.float8; }
  bool trains_weight(const ParameterViews& p) const { return p.table->specs()[first_weight_].trainable(); }
  // The weight in 8 bits, on the stack: [O, I], or with `transposed` [I, O].
  Float8Matrix weight8(Frame& frame, const ParameterViews& p, bool transposed) const;
  // The weight [O, I]. If a part of it is quantized, it is computed on the stack.
  View weight(Frame& frame, const ParameterViews& p) const;
  View weight_gradient(const ParameterViews& g) const { return g.joined(first_weight_, last_weight_); }
  View bias(const ParameterViews& views) const { return has_bias_ ? views.joined(first_bias_, last_bias_) : View{}; }
  View down(const ParameterViews& views) const { return views.joined(adapted_.front().a, adapted_.back().a); }
  std::vector<FactorPlace> places(const ParameterViews& views) const;
  View push_up(Frame& frame, const ParameterViews& p) const;
  View dropped(Frame& frame, View x) const;
  Dropout adapter_dropout(const Frame& frame) const;

  Handle first_weight_ = 0, last_weight_ = 0, first_bias_ = 0, last_bias_ = 0;
  bool has_bias_ = false;
  bool in_block_ = false;            // rather than in the head
  std::vector<std::string> layers_;  // the name of each part, without ".weight"
  std::vector<Adapted> adapted_;     // the parts with an adapter
  int64_t rank_ = 0, out_ = 0;       // R, O
  double adapter_dropout_ = 0;
  uint32_t number_ = 0;
};

// Reserves stack memory for a matrix in 8 bits.
Float8Matrix push_float8(Frame& frame, int64_t rows, int64_t columns, bool squares);

// Adds to the gradients of several biases in one call. Entries with an empty d_bias are left out.
void bias_gradients(Frame& frame, std::initializer_list<BiasGradient> gradients);

}  // namespace tessera
