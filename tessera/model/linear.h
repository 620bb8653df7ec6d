// A linear layer: y = x · weightᵀ + bias.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tessera/model/unit.h"

namespace tessera {

// Letters: N tokens, I input and O output channels. p and g are the parameters and gradients of the unit whose table
// holds the tensors of the layer.
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
  // A layer of tensors that are in the table already.
  Linear(ParameterTable::Handle weight, std::optional<ParameterTable::Handle> bias)
      : first_weight_(weight),
        last_weight_(weight),
        first_bias_(bias.value_or(0)),
        last_bias_(first_bias_),
        has_bias_(bias.has_value()) {}

  // y = epilogue(x · weightᵀ + bias). preactivation [N, O] receives the argument of the epilogue, or is empty.
  void forward(Frame& frame, const ParameterViews& p, View x, View y, const LinearEpilogue& epilogue = {},
               View preactivation = {}) const;

  // How d_x and the layer's own input follow from the previous layer (Kernels::linear_backward_input).
  struct Previous {
    LinearEpilogue epilogue = {};
    View preactivation = {};  // [N, I] or empty
    View x = {};              // [N, I], receives the input again; or empty
  };
  // Computes d_x [N, I] from d_y [N, O].
  void backward_input(Frame& frame, const ParameterViews& p, View d_y, View d_x, const Previous& previous) const;
  void backward_input(Frame& frame, const ParameterViews& p, View d_y, View d_x) const {
    backward_input(frame, p, d_y, d_x, {});
  }
  // Adds d_yᵀ · x to the gradient of the weight, or overwrites a fresh gradient. Does nothing if the weight is frozen.
  void backward_weight(Frame& frame, const ParameterViews& g, View d_y, View x, bool fresh) const;
  void backward_weight(Frame& frame, const ParameterViews& g, View d_y, View x) const {
    backward_weight(frame, g, d_y, x, frame.fresh_gradients);
  }
  // The work of bias_gradients() for this layer. Its d_bias is empty if the bias is frozen, or if there is none.
  BiasGradient bias_gradient(const ParameterViews& g, View d_y) const { return {d_y, bias(g)}; }

 private:
  View weight(const ParameterViews& views) const { return views.joined(first_weight_, last_weight_); }
  View bias(const ParameterViews& views) const { return has_bias_ ? views.joined(first_bias_, last_bias_) : View{}; }

  ParameterTable::Handle first_weight_ = 0, last_weight_ = 0, first_bias_ = 0, last_bias_ = 0;
  bool has_bias_ = false;
};

// Adds to the gradients of several biases in one call. Entries with an empty d_bias are left out.
void bias_gradients(Frame& frame, std::initializer_list<BiasGradient> gradients);

}  // namespace tessera
