// The input x and the output y are [N, C]: N tokens, C channels. The formulas leave out biases and dropout.
//   a = norm1(x);  mid = r1 + W_dense · attention(W_qkv · a);  b = norm2(mid);  y = r2 + W_down · gelu(W_up · b)
// The residuals are r1 = x and r2 = mid, or with residual_from_norm r1 = a and r2 = b.
#include "tessera/model/bloom.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera {

std::vector<float> alibi_slopes(int64_t num_heads) {
  const int64_t power = int64_t{1} << static_cast<int>(std::floor(std::log2(static_cast<double>(num_heads))));
  std::vector<float> slopes;
  const double base = std::exp2(-8.0 / static_cast<double>(power));
  for (int64_t i = 1; i <= power; ++i) slopes.push_back(static_cast<float>(std::pow(base, static_cast<double>(i))));
  const double extra = std::exp2(-4.0 / static_cast<double>(power));
  for (int64_t j = 1; static_cast<int64_t>(slopes.size()) < num_heads; j += 2) {
    slopes.push_back(static_cast<float>(std::pow(extra, static_cast<double>(j))));
  }
  return slopes;
}

BloomBlock::BloomBlock(const ModelConfig& config, int64_t layer, View alibi)
    : Block(fmt::format("block.{}", layer)),
      layer_(layer),
      hidden_size_(config.hidden_size),
      num_heads_(config.num_heads),
      hidden_dropout_(config.hidden_dropout),
      attention_dropout_(config.attention_dropout),
      residual_from_norm_(config.residual_from_norm),
      attention_{config.num_heads, config.head_dim(), QkvLayout::interleaved, alibi} {
  const int64_t C = hidden_size_;
  const std::string h = fmt::format("h.{}.", layer);
  uint64_t stream = first_stream(layer);
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    const Initializer init{Initializer::Kind::normal, config.initializer_range, stream++};
    return Linear(table_, {{h + name + ".weight", init, h + name + ".bias", {}, out}}, in);
  };
  const auto norm = [&](const std::string& name) {
    return Norm(Norm::Kind::layer, table_, h + name, C, config.layer_norm_epsilon);
  };
  norm1_ = norm("input_layernorm");
  qkv_ = linear("self_attention.query_key_value", 3 * C, C);
  dense_ = linear("self_attention.dense", C, C);
  norm2_ = norm("post_attention_layernorm");
  up_ = linear("mlp.dense_h_to_4h", 4 * C, C);
  down_ = linear("mlp.dense_4h_to_h", C, 4 * C);
}

void BloomBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View stats1 = norm1_.push_stats(f, N), qkv = f.push(N, 3 * C), mid = f.push(N, C),
             stats2 = norm2_.push_stats(f, N);
  View log_sum_exp, o, up;
  const int64_t kept = push_parts(
      f, [&] { log_sum_exp = f.push_stats(N, num_heads_), o = f.push(N, C); }, [&] { up = f.push(N, 4 * C); });
  const View norm = f.push(N, C), gelu = f.push(N, 4 * C);

  norm1_.forward(f, p, x, norm, stats1);
  qkv_.forward(f, p, norm, qkv);
  attend(f, layer_, qkv, attention_, f.dropout(attention_dropout_, layer_, 0), o, log_sum_exp);
  dense_.forward(f, p, o, mid,
                 {Activation::none, f.dropout(hidden_dropout_, layer_, 1), residual_from_norm_ ? norm : x});

  norm2_.forward(f, p, mid, norm, stats2);
  up_.forward(f, p, norm, gelu, {Activation::gelu_tanh, {}, {}}, up);
  if (y) {
    down_.forward(f, p, gelu, y,
                  {Activation::none, f.dropout(hidden_dropout_, layer_, 2), residual_from_norm_ ? norm : mid});
  }

  if (f.recomputed.attention) log_sum_exp = o = {};
  if (f.recomputed.mlp) up = {};
  if (saved) *saved = {stats1, qkv, log_sum_exp, o, mid, stats2, up};
  f.stack.pop_to(saved ? kept : floor);
}

void BloomBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                          View d_y, View d_x) const {
  const auto& [stats1, qkv, kept_log_sum_exp, kept_o, mid, stats2, kept_up, unused] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  const bool post = residual_from_norm_;
  const Dropout attention_dropout = f.dropout(attention_dropout_, layer_, 0),
                dense_dropout = f.dropout(hidden_dropout_, layer_, 1),
                down_dropout = f.dropout(hidden_dropout_, layer_, 2);
  const View d_mid = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);  // norms are computed again, not kept
  View d_branch = d_y;  // gradient of a linear layer's output before dropout
  if (hidden_dropout_ > 0 && f.training) d_branch = f.push(N, C);

  if (down_dropout.rate > 0) f.ops->dropout_backward(d_y, down_dropout, d_branch);
  {
    const StackScope scope(f.stack);
    const View up = kept_up ? kept_up : f.push(N, 4 * C), d_up = f.push(N, 4 * C), inner = up;  // gelu(up), in place
    if (!kept_up) {
      norm2_.forward(f, p, mid, norm, stats2);
      // Only forward's kernel gives the same bits. It also writes gelu(up), which is not used.
      up_.forward(f, p, norm, d_up, {Activation::gelu_tanh, {}, {}}, up);
    }
    const Linear::Upstream d_down = down_.upstream(f, p, d_branch);
    down_.backward_input(f, p, d_down, d_up,
                         {.epilogue = {Activation::gelu_tanh, {}, {}}, .preactivation = up, .x = inner});
    // While both are in the cache.
    bias_gradients(f, {down_.bias_gradient(g, d_branch), up_.bias_gradient(g, d_up)});
    down_.backward_weight(f, p, g, d_down, inner);
    const Linear::Upstream d_inner = up_.upstream(f, p, d_up);
    up_.backward_input(f, p, d_inner, d_norm, {.epilogue = {Activation::none, {}, post ? d_y : View{}}});
    norm2_.backward(
        f, p, g, {.d_y = d_norm, .x = mid, .stats = stats2, .residual = post ? View{} : d_y, .d_x = d_mid, .y = norm});
    up_.backward_weight(f, p, g, d_inner, norm);
  }

  if (dense_dropout.rate > 0)
    f.ops->dropout_backward(d_mid, dense_dropout, d_branch);
  else
    d_branch = d_mid;
  const View d_o = f.push(N, C), d_qkv = f.push(N, 3 * C);
  View log_sum_exp = kept_log_sum_exp, o = kept_o;
  if (!o) {
    log_sum_exp = f.push_stats(N, num_heads_), o = f.push(N, C);
    attend(f, layer_, qkv, attention_, attention_dropout, o, log_sum_exp);
  }
  {
    const StackScope scope(f.stack);
    const Linear::Upstream d_dense = dense_.upstream(f, p, d_branch);
    dense_.backward_weight(f, p, g, d_dense, o);
    dense_.backward_input(f, p, d_dense, d_o);
  }
  {
    const StackScope scope(f.stack);
    f.ops->attention_backward({.qkv = qkv,
                               .o = o,
                               .log_sum_exp = log_sum_exp,
                               .d_o = d_o,
                               .starts = f.batch.starts,
                               .shape = attention_,
                               .dropout = attention_dropout,
                               .d_qkv = d_qkv,
                               .workspace = attention_workspace(f, attention_, N, kept_up)});
  }
  bias_gradients(f, {dense_.bias_gradient(g, d_branch), qkv_.bias_gradient(g, d_qkv)});
  const Linear::Upstream d_heads = qkv_.upstream(f, p, d_qkv);
  qkv_.backward_input(f, p, d_heads, d_norm, {.epilogue = {Activation::none, {}, post ? d_mid : View{}}});
  norm1_.backward(f, p, g,
                  {.d_y = d_norm, .x = x, .stats = stats1, .residual = post ? View{} : d_mid, .d_x = d_x, .y = norm});
  qkv_.backward_weight(f, p, g, d_heads, norm);
}

}  // namespace tessera
