#include "tessera/model/norm.h"

namespace tessera {

Norm::Norm(Kind kind, ParameterTable& table, const std::string& name, int64_t channels, double epsilon)
    : kind_(kind), epsilon_(epsilon) {
  weight_ = table.add(name + ".weight", {channels}, {Initializer::Kind::one}, false);
  if (kind == Kind::layer) bias_ = table.add(name + ".bias", {channels}, {Initializer::Kind::zero}, false);
}

void Norm::forward(Frame& f, const ParameterViews& p, View x, View y, View stats) const {
  if (kind_ == Kind::layer)
    f.ops->layer_norm_forward(x, p[weight_], p[bias_], epsilon_, y, stats);
  else
    f.ops->rms_norm_forward(x, p[weight_], epsilon_, y, stats);
}

void Norm::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, const NormGradient& n) const {
  const StackScope scope(f.stack);
  const int64_t C = n.x.shape[1];
  View d_weight = g[weight_];
  if (kind_ == Kind::rms) {
    d_weight = or_unwanted(f, d_weight, C, f.dtype);
    f.ops->rms_norm_backward(n.d_y, n.x, p[weight_], n.stats, n.residual, n.d_x, d_weight, n.y);
    return;
  }
  View d_bias = g[bias_];
  const DType dtype = d_weight ? d_weight.dtype : d_bias ? d_bias.dtype : f.dtype;
  d_weight = or_unwanted(f, d_weight, C, dtype);
  d_bias = or_unwanted(f, d_bias, C, dtype);
  f.ops->layer_norm_backward(n.d_y, n.x, p[weight_], n.y ? p[bias_] : View{}, n.stats, n.residual, n.d_x, d_weight,
                             d_bias, n.y);
}

bool Norm::trains(const ParameterTable& table) const {
  return table.specs()[weight_].trainable() || (kind_ == Kind::layer && table.specs()[bias_].trainable());
}

}  // namespace tessera
