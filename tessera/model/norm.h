// A norm over the channels of each token: layer norm (BLOOM) or root mean square norm (Llama).
#pragma once

#include <string>

#include "tessera/model/unit.h"

namespace tessera {

class Norm {
 public:
  enum class Kind { layer, rms };
  // Adds `name`.weight [C], and for a layer norm `name`.bias [C], to the table.
  Norm(Kind kind, ParameterTable& table, const std::string& name, int64_t channels, double epsilon);

  // Reserves stack memory for the statistics that forward writes and backward reads.
  View push_stats(Frame& frame, int64_t rows) const { return frame.push_stats(rows, kind_ == Kind::layer ? 2 : 1); }
  // y may be the same view as x. stats may be empty.
  void forward(Frame& frame, const ParameterViews& p, View x, View y, View stats) const;
  // d_x = residual + gradient through the norm. residual may be empty or the same view as d_x, and d_x may be the same
  // view as d_y. backward adds the gradients of weight and bias to `g`. If y is not empty, backward computes the output
  // of forward again and writes it to y.
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View d_y, View x, View stats,
                View residual, View d_x, View y) const;

 private:
  Kind kind_;
  double epsilon_;
  ParameterTable::Handle weight_, bias_ = 0;
};

}  // namespace tessera
