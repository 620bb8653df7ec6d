#include "tessera/model/norm.h"

namespace tessera {

Norm::Norm(Kind kind, ParameterTable& table, const std::string& name, int64_t channels, double epsilon)
    : kind_(kind), epsilon_(epsilon) {
  weight_ = table.add(name + ".weight", {channels}, {Initializer::Kind::one}, false);
  if (kind == Kind::layer) bias_ = table.add(name + ".bias", {channels}, {Initializer::Kind::zero}, false);
}

void Norm::forward(Frame& f, const ParameterViews& p, View x, const LinearInput& y, View stats) const {
  const bool layer = kind_ == Kind::layer;
  const Kernels::NormForward call{.x = x,
                                  .weight = p[weight_],
                                  .bias = layer ? p[bias_] : View{},
                                  .epsilon = epsilon_,
                                  .y = y.x,
                                  .y8 = y.rows,
                                  .stats = stats};
  layer ? f.ops->layer_norm_forward(call) : f.ops->rms_norm_forward(call);
}

void Norm::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, const NormGradient& n) const {
  const StackScope scope(f.stack);
  const bool layer = kind_ == Kind::layer;
  const int64_t C = n.x.shape[1];
  const View d_weight = g[weight_], d_bias = layer ? g[bias_] : View{};
  const DType dtype = d_weight ? d_weight.dtype : d_bias ? d_bias.dtype : f.dtype;
  const Kernels::NormBackward call{.d_y = n.d_y,
                                   .x = n.x,
                                   .weight = p[weight_],
                                   .bias = layer && n.y.x ? p[bias_] : View{},
                                   .stats = n.stats,
                                   .residual = n.residual,
                                   .d_x = n.d_x,
                                   .d_weight = or_unwanted(f, d_weight, C, dtype),
                                   .d_bias = layer ? or_unwanted(f, d_bias, C, dtype) : View{},
                                   .y = n.y.x};
  if (n.y.columns) {  // before d_x, which may overwrite what these read
    f.ops->quantize(
        {.x = n.x,
         .norm = {.weight = p[weight_], .bias = layer ? p[bias_] : View{}, .stats = n.stats, .epsilon = epsilon_},
         .columns = n.y.columns});
  }
  layer ? f.ops->layer_norm_backward(call) : f.ops->rms_norm_backward(call);
}

bool Norm::trains(const ParameterTable& table) const {
  return table.specs()[weight_].trainable() || (kind_ == Kind::layer && table.specs()[bias_].trainable());
}

}  // namespace tessera
