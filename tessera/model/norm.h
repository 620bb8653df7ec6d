// A norm over the channels of each token: layer norm (BLOOM) or root mean square norm (Llama).
#pragma once

#include <string>

#include "tessera/model/unit.h"

namespace tessera {

// The arguments of a norm's backward pass. d_x = residual + gradient through the norm.
struct NormGradient {
  View d_y, x, stats;      // [N, C], [N, C], and what forward wrote
  View residual = {};      // [N, C] or empty; may be d_x
  View d_x;                // [N, C]; may be d_y
  LinearInput y = View{};  // receives the output of forward again: [N, C], or its `columns`; or empty
};

class Norm {
 public:
  enum class Kind { layer, rms };

  Norm() = default;
  // Adds `name`.weight [C], and for a layer norm `name`.bias [C], to the table.
  Norm(Kind kind, ParameterTable& table, const std::string& name, int64_t channels, double epsilon);

  // Reserves stack memory for the statistics that forward writes and backward reads.
  View push_stats(Frame& frame, int64_t rows) const { return frame.push_stats(rows, kind_ == Kind::layer ? 2 : 1); }
  // y may be the same view as x, or it receives its `rows`. stats may be empty.
  void forward(Frame& frame, const ParameterViews& p, View x, const LinearInput& y, View stats) const;
  // Also adds the gradients of weight and bias to `g`, unless they are frozen.
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, const NormGradient& gradient) const;
  bool trains(const ParameterTable& table) const;  // whether the weight or the bias is trainable

 private:
  Kind kind_ = Kind::layer;
  double epsilon_ = 0;
  ParameterTable::Handle weight_ = 0, bias_ = 0;
};

}  // namespace tessera
