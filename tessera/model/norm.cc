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

void Norm::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View d_y, View x, View stats,
                    View residual, View d_x, View y) const {
  if (kind_ == Kind::layer) {
    norm_backward(f, d_y, x, p[weight_], y ? p[bias_] : View{}, stats, residual, d_x, g[weight_], g[bias_], y);
  } else {
    const StackScope scope(f.stack);
    const View sums = or_unwanted(f, g[weight_], x.shape[1], f.dtype);
    f.ops->rms_norm_backward(d_y, x, p[weight_], stats, residual, d_x, sums, y);
  }
}

}  // namespace tessera
