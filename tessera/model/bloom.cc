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
      epsilon_(config.layer_norm_epsilon),
      hidden_dropout_(config.hidden_dropout),
      attention_dropout_(config.attention_dropout),
      residual_from_norm_(config.residual_from_norm),
      attention_{config.num_heads, config.head_dim(), QkvLayout::interleaved, alibi} {
  const int64_t C = hidden_size_;
  const std::string h = fmt::format("h.{}.", layer);
  uint64_t stream = 16 * static_cast<uint64_t>(layer + 1);  // root and head use the random streams below 16
  const auto weight = [&](const char* name, int64_t out, int64_t in) {
    const Initializer init{Initializer::Kind::normal, config.initializer_range, stream++};
    return table_.add(h + name, {out, in}, init, true);
  };
  const auto vector = [&](const char* name, int64_t size, Initializer::Kind kind) {
    return table_.add(h + name, {size}, {kind}, false);
  };
  using enum Initializer::Kind;
  qkv_weight_ = weight("self_attention.query_key_value.weight", 3 * C, C);
  dense_weight_ = weight("self_attention.dense.weight", C, C);
  up_weight_ = weight("mlp.dense_h_to_4h.weight", 4 * C, C);
  down_weight_ = weight("mlp.dense_4h_to_h.weight", C, 4 * C);
  norm1_weight_ = vector("input_layernorm.weight", C, one);
  norm1_bias_ = vector("input_layernorm.bias", C, zero);
  qkv_bias_ = vector("self_attention.query_key_value.bias", 3 * C, zero);
  dense_bias_ = vector("self_attention.dense.bias", C, zero);
  norm2_weight_ = vector("post_attention_layernorm.weight", C, one);
  norm2_bias_ = vector("post_attention_layernorm.bias", C, zero);
  up_bias_ = vector("mlp.dense_h_to_4h.bias", 4 * C, zero);
  down_bias_ = vector("mlp.dense_4h_to_h.bias", C, zero);
}

Dropout BloomBlock::dropout(const Frame& f, uint32_t site, double rate) const {
  if (!f.training || rate == 0) return {};
  return {static_cast<float>(rate), f.dropout_seed, static_cast<uint32_t>(layer_) * 4 + site, f.batch.row_ids};
}

void BloomBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View stats1 = f.push_stats(N, 2), qkv = f.push(N, 3 * C), log_sum_exp = f.push_stats(N, num_heads_),
             o = f.push(N, C), mid = f.push(N, C), stats2 = f.push_stats(N, 2), up = f.push(N, 4 * C);
  const int64_t kept = f.stack.mark();
  const View norm = f.push(N, C), gelu = f.push(N, 4 * C);

  f.ops->layer_norm_forward(x, p[norm1_weight_], p[norm1_bias_], epsilon_, norm, stats1);
  f.ops->linear_forward(norm, p[qkv_weight_], p[qkv_bias_], {}, {}, qkv);
  attend(f, layer_, qkv, attention_, dropout(f, 0, attention_dropout_), o, log_sum_exp);
  f.ops->linear_forward(o, p[dense_weight_], p[dense_bias_],
                        {Activation::none, dropout(f, 1, hidden_dropout_), residual_from_norm_ ? norm : x}, {}, mid);

  f.ops->layer_norm_forward(mid, p[norm2_weight_], p[norm2_bias_], epsilon_, norm, stats2);
  f.ops->linear_forward(norm, p[up_weight_], p[up_bias_], {Activation::gelu_tanh, {}, {}}, up, gelu);
  if (y) {
    f.ops->linear_forward(gelu, p[down_weight_], p[down_bias_],
                          {Activation::none, dropout(f, 2, hidden_dropout_), residual_from_norm_ ? norm : mid}, {}, y);
  }

  if (saved) *saved = {stats1, qkv, log_sum_exp, o, mid, stats2, up};
  f.stack.pop_to(saved ? kept : floor);
}

void BloomBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                          View d_y, View d_x) const {
  const auto& [stats1, qkv, log_sum_exp, o, mid, stats2, up, unused] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  const bool post = residual_from_norm_;
  const Dropout attention_dropout = dropout(f, 0, attention_dropout_), dense_dropout = dropout(f, 1, hidden_dropout_),
                down_dropout = dropout(f, 2, hidden_dropout_);
  const View d_mid = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);  // norms are computed again, not kept
  View d_branch = d_y;  // gradient of a linear layer's output before dropout
  if (hidden_dropout_ > 0 && f.training) d_branch = f.push(N, C);

  if (down_dropout.rate > 0) f.ops->dropout_backward(d_y, down_dropout, d_branch);
  {
    const StackScope scope(f.stack);
    const LinearEpilogue gelu{Activation::gelu_tanh, {}, {}};
    const View d_up = f.push(N, 4 * C), inner = up;  // gelu(up), in place
    f.ops->linear_backward_input(d_branch, p[down_weight_], gelu, up, d_up, inner);
    bias_gradients(f, {{d_branch, g[down_bias_]}, {d_up, g[up_bias_]}});  // while both are in the cache
    weight_gradient(f, d_branch, inner, g[down_weight_]);
    f.ops->linear_backward_input(d_up, p[up_weight_], {Activation::none, {}, post ? d_y : View{}}, {}, d_norm, {});
    norm_backward(f, d_norm, mid, p[norm2_weight_], p[norm2_bias_], stats2, post ? View{} : d_y, d_mid,
                  g[norm2_weight_], g[norm2_bias_], norm);
    weight_gradient(f, d_up, norm, g[up_weight_]);
  }

  if (dense_dropout.rate > 0)
    f.ops->dropout_backward(d_mid, dense_dropout, d_branch);
  else
    d_branch = d_mid;
  const View d_o = f.push(N, C), d_qkv = f.push(N, 3 * C);
  weight_gradient(f, d_branch, o, g[dense_weight_]);
  f.ops->linear_backward_input(d_branch, p[dense_weight_], {}, {}, d_o, {});
  {
    const StackScope scope(f.stack);
    f.ops->attention_backward(qkv, o, log_sum_exp, d_o, f.batch.starts, attention_, attention_dropout, d_qkv,
                              attention_workspace(f, attention_, N, up));
  }
  bias_gradients(f, {{d_branch, g[dense_bias_]}, {d_qkv, g[qkv_bias_]}});
  f.ops->linear_backward_input(d_qkv, p[qkv_weight_], {Activation::none, {}, post ? d_mid : View{}}, {}, d_norm, {});
  norm_backward(f, d_norm, x, p[norm1_weight_], p[norm1_bias_], stats1, post ? View{} : d_mid, d_x, g[norm1_weight_],
                g[norm1_bias_], norm);
  weight_gradient(f, d_qkv, norm, g[qkv_weight_]);
}

}  // namespace tessera
