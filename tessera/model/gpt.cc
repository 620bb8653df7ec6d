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
      rate_(config.hidden_dropout),
      attention_{config.num_heads, config.head_dim(), QkvLayout::blocked, {}} {
  const int64_t C = hidden_size_, F = ff_dim_;
  const std::string prefix = fmt::format("transformer.layers.{}.", layer);
  const double fan_c = 1 / std::sqrt(static_cast<double>(C)), fan_f = 1 / std::sqrt(static_cast<double>(F));
  const double xavier = std::sqrt(6.0 / static_cast<double>(C + 3 * C));
  using enum Initializer::Kind;
  // All layers start with the same values, because torch's TransformerEncoder copies its first layer. The numbers of
  // the random streams (16 to 21) therefore do not depend on `layer`.
  const auto linear = [&](const char* weight, const char* bias, int64_t out, int64_t in, const Initializer& weight_init,
                          const Initializer& bias_init) {
    return Linear(table_, {{prefix + weight, weight_init, prefix + bias, bias_init, out}}, in);
  };
  in_ = linear("self_attn.in_proj_weight", "self_attn.in_proj_bias", 3 * C, C, {uniform, xavier, 16}, {});
  out_ = linear("self_attn.out_proj.weight", "self_attn.out_proj.bias", C, C, {uniform, fan_c, 17}, {});
  up_ = linear("linear1.weight", "linear1.bias", F, C, {uniform, fan_c, 18}, {uniform, fan_c, 20});
  down_ = linear("linear2.weight", "linear2.bias", C, F, {uniform, fan_f, 19}, {uniform, fan_f, 21});
  norm1_ = Norm(Norm::Kind::layer, table_, prefix + "norm1", C, config.layer_norm_epsilon);
  norm2_ = Norm(Norm::Kind::layer, table_, prefix + "norm2", C, config.layer_norm_epsilon);
}

void GptBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View qkv = f.push(N, 3 * C), sum1 = f.push(N, C), stats1 = norm1_.push_stats(f, N), sum2 = f.push(N, C),
             stats2 = norm2_.push_stats(f, N);
  View log_sum_exp, o, up;
  const int64_t kept = push_parts(
      f, [&] { log_sum_exp = f.push_stats(N, num_heads_), o = f.push(N, C); }, [&] { up = f.push(N, ff_dim_); });
  const View norm = f.push(N, C), inner = f.push(N, ff_dim_);

  in_.forward(f, p, x, qkv);
  attend(f, layer_, qkv, attention_, dropout(f, 0), o, log_sum_exp);
  out_.forward(f, p, o, sum1, {Activation::none, dropout(f, 1), x});
  norm1_.forward(f, p, sum1, norm, stats1);
  up_.forward(f, p, norm, inner, {Activation::relu, dropout(f, 2), {}}, up);
  down_.forward(f, p, inner, sum2, {Activation::none, dropout(f, 3), norm});
  norm2_.forward(f, p, sum2, y ? y : norm, stats2);

  if (f.recomputed.attention) log_sum_exp = o = {};
  if (f.recomputed.mlp) up = {};
  if (saved) *saved = {qkv, log_sum_exp, o, sum1, stats1, up, sum2, stats2};
  f.stack.pop_to(saved ? kept : floor);
}

void GptBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                        View d_y, View d_x) const {
  const auto& [qkv, kept_log_sum_exp, kept_o, sum1, stats1, kept_up, sum2, stats2] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  const bool drops = f.training && rate_ > 0;
  const View d_sum = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);
  const View d_branch = drops ? f.push(N, C) : d_sum;  // gradient of the argument of d3, later of d1

  norm2_.backward(f, p, g, {.d_y = d_y, .x = sum2, .stats = stats2, .d_x = d_sum});
  if (drops) f.ops->dropout_backward(d_sum, dropout(f, 3), d_branch);
  {
    const StackScope scope(f.stack);
    const View up = kept_up ? kept_up : f.push(N, ff_dim_), d_up = f.push(N, ff_dim_);
    if (!kept_up) {
      norm1_.forward(f, p, sum1, norm, stats1);
      // Only forward's kernel gives the same bits. It also writes the input of W_down, which is not used.
      up_.forward(f, p, norm, d_up, {Activation::relu, dropout(f, 2), {}}, up);
    }
    const View inner = up;  // the input of W_down, computed again; overwrites `up`
    const Linear::Upstream d_down = down_.upstream(f, p, d_branch);
    down_.backward_input(f, p, d_down, d_up,
                         {.epilogue = {Activation::relu, dropout(f, 2), {}}, .preactivation = up, .x = inner});
    // Called here, because d_branch and d_up are still in the cache.
    bias_gradients(f, {down_.bias_gradient(g, d_branch), up_.bias_gradient(g, d_up)});
    down_.backward_weight(f, p, g, d_down, inner);
    const Linear::Upstream d_inner = up_.upstream(f, p, d_up);
    up_.backward_input(f, p, d_inner, d_norm, {.epilogue = {Activation::none, {}, d_sum}});
    norm1_.backward(f, p, g, {.d_y = d_norm, .x = sum1, .stats = stats1, .d_x = d_sum, .y = norm});
    up_.backward_weight(f, p, g, d_inner, norm);
  }
  if (drops) f.ops->dropout_backward(d_sum, dropout(f, 1), d_branch);
  const View d_o = f.push(N, C), d_qkv = f.push(N, 3 * C);
  View log_sum_exp = kept_log_sum_exp, o = kept_o;
  if (!o) {
    log_sum_exp = f.push_stats(N, num_heads_), o = f.push(N, C);
    attend(f, layer_, qkv, attention_, dropout(f, 0), o, log_sum_exp);
  }
  {
    const StackScope scope(f.stack);
    const Linear::Upstream d_out = out_.upstream(f, p, d_branch);
    out_.backward_weight(f, p, g, d_out, o);
    out_.backward_input(f, p, d_out, d_o);
  }
  {
    const StackScope scope(f.stack);
    f.ops->attention_backward({.qkv = qkv,
                               .o = o,
                               .log_sum_exp = log_sum_exp,
                               .d_o = d_o,
                               .starts = f.batch.starts,
                               .shape = attention_,
                               .dropout = dropout(f, 0),
                               .d_qkv = d_qkv,
                               .workspace = attention_workspace(f, attention_, N, kept_up)});
  }
  bias_gradients(f, {out_.bias_gradient(g, d_branch), in_.bias_gradient(g, d_qkv)});
  const Linear::Upstream d_heads = in_.upstream(f, p, d_qkv);
  in_.backward_weight(f, p, g, d_heads, x);
  in_.backward_input(f, p, d_heads, d_x, {.epilogue = {Activation::none, {}, d_sum}});
}

}  // namespace tessera
