// One block computes y from x. N tokens, C channels, F inner channels. d0 … d3 are dropouts. attention_d0 applies d0 to
// the attention probabilities. The formulas omit the biases.
//   s1 = x + d1(W_out · attention_d0(W_in · x));  n = norm1(s1);
//   s2 = n + d3(W_down · d2(relu(W_up · n)));  y = norm2(s2)
#include "tessera/model/gpt.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {

GptBlock::GptBlock(const ModelConfig& config, int64_t layer)
    : Block(fmt::format("block.{}", layer)),
      layer_(layer),
      hidden_size_(config.hidden_size),
      num_heads_(config.num_heads),
      ff_dim_(config.ff_dim),
      epsilon_(config.layer_norm_epsilon),
      rate_(config.hidden_dropout),
      attention_{config.num_heads, config.head_dim(), QkvLayout::blocked, {}} {
  const int64_t C = hidden_size_, F = ff_dim_;
  const std::string prefix = fmt::format("transformer.layers.{}.", layer);
  const double fan_c = 1 / std::sqrt(static_cast<double>(C)), fan_f = 1 / std::sqrt(static_cast<double>(F));
  const double xavier = std::sqrt(6.0 / static_cast<double>(C + 3 * C));
  using enum Initializer::Kind;
  // All layers start with the same values, because torch's TransformerEncoder copies its first layer. The numbers of
  // the random streams (16 to 21) therefore do not depend on `layer`.
  const auto add = [&](const char* name, Shape shape, Initializer init, bool decays) {
    return table_.add(prefix + name, shape, init, decays);
  };
  in_weight_ = add("self_attn.in_proj_weight", {3 * C, C}, {uniform, xavier, 16}, true);
  out_weight_ = add("self_attn.out_proj.weight", {C, C}, {uniform, fan_c, 17}, true);
  up_weight_ = add("linear1.weight", {F, C}, {uniform, fan_c, 18}, true);
  down_weight_ = add("linear2.weight", {C, F}, {uniform, fan_f, 19}, true);
  in_bias_ = add("self_attn.in_proj_bias", {3 * C}, {zero}, false);
  out_bias_ = add("self_attn.out_proj.bias", {C}, {zero}, false);
  up_bias_ = add("linear1.bias", {F}, {uniform, fan_c, 20}, false);
  down_bias_ = add("linear2.bias", {C}, {uniform, fan_f, 21}, false);
  norm1_weight_ = add("norm1.weight", {C}, {one}, false);
  norm1_bias_ = add("norm1.bias", {C}, {zero}, false);
  norm2_weight_ = add("norm2.weight", {C}, {one}, false);
  norm2_bias_ = add("norm2.bias", {C}, {zero}, false);
}

Dropout GptBlock::dropout(const Frame& f, uint32_t site) const {
  if (!f.training || rate_ == 0) return {};
  return {static_cast<float>(rate_), f.dropout_seed, static_cast<uint32_t>(layer_) * 4 + site, f.batch.row_ids};
}

void GptBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View qkv = f.push(N, 3 * C), log_sum_exp = f.push_stats(N, num_heads_), o = f.push(N, C), sum1 = f.push(N, C),
             stats1 = f.push_stats(N, 2), up = f.push(N, ff_dim_), sum2 = f.push(N, C), stats2 = f.push_stats(N, 2);
  const int64_t kept = f.stack.mark();
  const View norm = f.push(N, C), inner = f.push(N, ff_dim_);

  f.ops->linear_forward(x, p[in_weight_], p[in_bias_], {}, {}, qkv);
  attend(f, layer_, qkv, attention_, dropout(f, 0), o, log_sum_exp);
  f.ops->linear_forward(o, p[out_weight_], p[out_bias_], {Activation::none, dropout(f, 1), x}, {}, sum1);
  f.ops->layer_norm_forward(sum1, p[norm1_weight_], p[norm1_bias_], epsilon_, norm, stats1);
  f.ops->linear_forward(norm, p[up_weight_], p[up_bias_], {Activation::relu, dropout(f, 2), {}}, up, inner);
  f.ops->linear_forward(inner, p[down_weight_], p[down_bias_], {Activation::none, dropout(f, 3), norm}, {}, sum2);
  f.ops->layer_norm_forward(sum2, p[norm2_weight_], p[norm2_bias_], epsilon_, y ? y : norm, stats2);

  if (saved) *saved = {qkv, log_sum_exp, o, sum1, stats1, up, sum2, stats2};
  f.stack.pop_to(saved ? kept : floor);
}

void GptBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                        View d_y, View d_x) const {
  const auto& [qkv, log_sum_exp, o, sum1, stats1, up, sum2, stats2] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  const bool drops = f.training && rate_ > 0;
  const View d_sum = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);
  const View d_branch = drops ? f.push(N, C) : d_sum;  // gradient of the argument of d3, later of d1

  norm_backward(f, d_y, sum2, p[norm2_weight_], {}, stats2, {}, d_sum, g[norm2_weight_], g[norm2_bias_], {});
  if (drops) f.ops->dropout_backward(d_sum, dropout(f, 3), d_branch);
  {
    const StackScope scope(f.stack);
    const LinearEpilogue relu{Activation::relu, dropout(f, 2), {}};
    const View d_up = f.push(N, ff_dim_), inner = up;  // the input of W_down, computed again; overwrites `up`
    f.ops->linear_backward_input(d_branch, p[down_weight_], relu, up, d_up, inner);
    // Called here, because d_branch and d_up are still in the cache.
    bias_gradients(f, {{d_branch, g[down_bias_]}, {d_up, g[up_bias_]}});
    weight_gradient(f, d_branch, inner, g[down_weight_]);
    f.ops->linear_backward_input(d_up, p[up_weight_], {Activation::none, {}, d_sum}, {}, d_norm, {});
    norm_backward(f, d_norm, sum1, p[norm1_weight_], p[norm1_bias_], stats1, {}, d_sum, g[norm1_weight_],
                  g[norm1_bias_], norm);
    weight_gradient(f, d_up, norm, g[up_weight_]);
  }
  if (drops) f.ops->dropout_backward(d_sum, dropout(f, 1), d_branch);
  const View d_o = f.push(N, C), d_qkv = f.push(N, 3 * C);
  weight_gradient(f, d_branch, o, g[out_weight_]);
  f.ops->linear_backward_input(d_branch, p[out_weight_], {}, {}, d_o, {});
  {
    const StackScope scope(f.stack);
    f.ops->attention_backward(qkv, o, log_sum_exp, d_o, f.batch.starts, attention_, dropout(f, 0), d_qkv,
                              attention_workspace(f, attention_, N, up));
  }
  bias_gradients(f, {{d_branch, g[out_bias_]}, {d_qkv, g[in_bias_]}});
  weight_gradient(f, d_qkv, x, g[in_weight_]);
  f.ops->linear_backward_input(d_qkv, p[in_weight_], {Activation::none, {}, d_sum}, {}, d_x, {});
}

}  // namespace tessera
