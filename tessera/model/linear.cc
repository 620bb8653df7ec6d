#include "tessera/model/linear.h"

namespace tessera {

Linear::Linear(ParameterTable& table, const std::vector<Part>& parts, int64_t in)
    : has_bias_(!parts.front().bias.empty()) {
  using enum ParameterTable::Gap;
  for (const Part& part : parts) {
    const bool first = &part == &parts.front();
    last_weight_ = table.add(part.weight, {part.out, in}, part.weight_init, true, first ? aligned : none);
    if (first) first_weight_ = last_weight_;
  }
  if (!has_bias_) return;
  for (const Part& part : parts) {
    const bool first = &part == &parts.front();
    last_bias_ = table.add(part.bias, {part.out}, part.bias_init, false, first ? aligned : none);
    if (first) first_bias_ = last_bias_;
  }
}

void Linear::forward(Frame& f, const ParameterViews& p, View x, View y, const LinearEpilogue& epilogue,
                     View preactivation) const {
  f.ops->linear_forward(
      {.x = x, .weight = weight(p), .bias = bias(p), .epilogue = epilogue, .preactivation = preactivation, .y = y});
}

void Linear::backward_input(Frame& f, const ParameterViews& p, View d_y, View d_x, const Previous& previous) const {
  f.ops->linear_backward_input({.d_y = d_y,
                                .weight = weight(p),
                                .epilogue = previous.epilogue,
                                .preactivation = previous.preactivation,
                                .d_x = d_x,
                                .x = previous.x});
}

void Linear::backward_weight(Frame& f, const ParameterViews& g, View d_y, View x, bool fresh) const {
  if (const View d_weight = weight(g)) f.ops->linear_backward_weight(d_y, x, fresh, d_weight);
}

void bias_gradients(Frame& f, std::initializer_list<BiasGradient> gradients) {
  std::vector<BiasGradient> wanted;
  for (const BiasGradient& one : gradients) {
    if (one.d_bias) wanted.push_back(one);
  }
  if (!wanted.empty()) f.ops->linear_backward_bias(wanted);
}

}  // namespace tessera
