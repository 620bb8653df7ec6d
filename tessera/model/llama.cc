// N tokens, C channels, F inner channels, heads of D channels. W_… are weights. The formulas omit the biases and the
// norms of heads, which some models have.
//   a = norm1(x);  mid = x + W_o · attention(rotate(W_qkv · a));  b = norm2(mid)
//   y = mid + W_down · (activation(W_gate · b) ∘ W_up · b)
#include "tessera/model/llama.h"

#include <fmt/format.h>

namespace tessera {

LlamaBlock::LlamaBlock(const ModelConfig& config, int64_t layer)
    : Block(fmt::format("block.{}", layer)),
      layer_(layer),
      hidden_size_(config.hidden_size),
      ff_dim_(config.ff_dim),
      epsilon_(config.layer_norm_epsilon),
      attention_dropout_(config.attention_dropout),
      activation_(config.activation),
      attention_{config.num_heads,  config.head_dim(),      QkvLayout::blocked, {},
                 config.kv_heads(), config.window_of(layer)} {
  const int64_t C = hidden_size_, F = ff_dim_, D = config.head_dim();
  const int64_t queries = attention_.channels(), keys = attention_.kv_channels();
  const std::string prefix = fmt::format("layers.{}.", layer);
  uint64_t stream = 16 * static_cast<uint64_t>(layer + 1);  // the root unit uses the random streams below 16
  const auto weight = [&](const char* name, int64_t out, int64_t in, ParameterTable::Gap gap) {
    const Initializer init{Initializer::Kind::normal, config.initializer_range, stream++};
    return table_.add(fmt::format("{}{}.weight", prefix, name), {out, in}, init, true, gap);
  };
  const auto bias = [&](const char* name, int64_t size, ParameterTable::Gap gap) {
    return table_.add(fmt::format("{}{}.bias", prefix, name), {size}, {Initializer::Kind::zero}, false, gap);
  };
  using enum ParameterTable::Gap;
  qkv_weight_.first = weight("self_attn.q_proj", queries, C, aligned);
  weight("self_attn.k_proj", keys, C, none);
  qkv_weight_.last = weight("self_attn.v_proj", keys, C, none);
  o_weight_ = weight("self_attn.o_proj", C, queries, aligned);
  gate_up_weight_.first = weight("mlp.gate_proj", F, C, aligned);
  gate_up_weight_.last = weight("mlp.up_proj", F, C, none);
  down_weight_ = weight("mlp.down_proj", C, F, aligned);
  norm1_.emplace(Norm::Kind::rms, table_, prefix + "input_layernorm", C, epsilon_);
  norm2_.emplace(Norm::Kind::rms, table_, prefix + "post_attention_layernorm", C, epsilon_);
  if (config.qkv_bias) {
    qkv_bias_.emplace();
    qkv_bias_->first = bias("self_attn.q_proj", queries, aligned);
    bias("self_attn.k_proj", keys, none);
    qkv_bias_->last = bias("self_attn.v_proj", keys, none);
  }
  if (config.o_bias) o_bias_ = bias("self_attn.o_proj", C, aligned);
  if (config.mlp_bias) {
    gate_up_bias_.emplace();
    gate_up_bias_->first = bias("mlp.gate_proj", F, aligned);
    gate_up_bias_->last = bias("mlp.up_proj", F, none);
    down_bias_ = bias("mlp.down_proj", C, aligned);
  }
  if (config.head_norms) {
    const Initializer one{Initializer::Kind::one};
    query_norm_ = table_.add(prefix + "self_attn.q_norm.weight", {D}, one, false);
    key_norm_ = table_.add(prefix + "self_attn.k_norm.weight", {D}, one, false);
  }
}

Dropout LlamaBlock::dropout(const Frame& f) const {
  if (!f.training || attention_dropout_ == 0) return {};
  return {static_cast<float>(attention_dropout_), f.dropout_seed, static_cast<uint32_t>(layer_) * 4, f.batch.row_ids};
}

HeadNorms LlamaBlock::head_norms(const Views& p) const {
  return {optional(p, query_norm_), optional(p, key_norm_), epsilon_};
}

// If the heads have norms, the kernel always sums the gradients of both norms (of queries and of keys). The sum of a
// frozen norm goes to the stack and is not used.
View LlamaBlock::head_norm_gradient(Frame& f, const Views& g,
                                    const std::optional<ParameterTable::Handle>& tensor) const {
  return tensor ? or_unwanted(f, g[*tensor], attention_.head_dim, f.dtype) : View{};
}

// If the heads have no norms, the queries and keys are rotated in place. If the heads have norms, rotate_heads writes
// to another array, because backward needs the rows of qkv as they were before the norms.
void LlamaBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const int64_t W = attention_.row_channels();  // channels of a row of qkv
  const View rstd1 = norm1_->push_stats(f, N), qkv = f.push(N, W), log_sum_exp = f.push_stats(N, attention_.num_heads),
             o = f.push(N, attention_.channels()), mid = f.push(N, C), rstd2 = norm2_->push_stats(f, N),
             gate_up = f.push(N, 2 * ff_dim_);
  const int64_t kept = f.stack.mark();
  const View norm = f.push(N, C);

  norm1_->forward(f, p, x, norm, rstd1);
  f.ops->linear_forward(norm, joined(p, qkv_weight_), joined(p, qkv_bias_), {}, {}, qkv);
  {
    const StackScope scope(f.stack);
    const View rotated = query_norm_ ? f.push(N, W) : qkv;
    f.ops->rotate_heads(qkv, f.rotations, attention_, head_norms(p), rotated);
    attend(f, layer_, rotated, attention_, dropout(f), o, log_sum_exp);
  }
  f.ops->linear_forward(o, p[o_weight_], optional(p, o_bias_), {Activation::none, {}, x}, {}, mid);

  norm2_->forward(f, p, mid, norm, rstd2);
  f.ops->linear_forward(norm, joined(p, gate_up_weight_), joined(p, gate_up_bias_), {}, {}, gate_up);
  if (y) {
    const View h = f.push(N, ff_dim_);
    f.ops->gated_forward(gate_up, activation_, h);
    f.ops->linear_forward(h, p[down_weight_], optional(p, down_bias_), {Activation::none, {}, mid}, {}, y);
  }

  if (saved) *saved = {rstd1, qkv, log_sum_exp, o, mid, rstd2, gate_up};
  f.stack.pop_to(saved ? kept : floor);
}

void LlamaBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                          View d_y, View d_x) const {
  const auto& [rstd1, qkv, log_sum_exp, o, mid, rstd2, gate_up, unused] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  // `norm` gets the output of norm2 again, and later the output of norm1, because forward does not save them.
  const View d_mid = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);
  {
    const StackScope scope(f.stack);
    const View d_h = f.push(N, ff_dim_), h = d_h, d_gate_up = gate_up;  // gated_backward overwrites its inputs
    f.ops->linear_backward_input(d_y, p[down_weight_], {}, {}, d_h, {});
    f.ops->gated_backward(d_h, gate_up, activation_, d_gate_up, h);
    weight_gradient(f, d_y, h, g[down_weight_]);
    if (gate_up_bias_) bias_gradients(f, {{d_y, g[*down_bias_]}, {d_gate_up, joined(g, gate_up_bias_)}});
    f.ops->linear_backward_input(d_gate_up, joined(p, gate_up_weight_), {}, {}, d_norm, {});
    norm2_->backward(f, p, g, d_norm, mid, rstd2, d_y, d_mid, norm);
    weight_gradient(f, d_gate_up, norm, joined(g, gate_up_weight_));
  }

  const View d_o = f.push(N, attention_.channels()), d_qkv = f.push(N, attention_.row_channels());
  weight_gradient(f, d_mid, o, g[o_weight_]);
  if (o_bias_) bias_gradients(f, {{d_mid, g[*o_bias_]}});
  f.ops->linear_backward_input(d_mid, p[o_weight_], {}, {}, d_o, {});
  {
    const StackScope scope(f.stack);
    const HeadNorms norms = head_norms(p);
    View rotated = qkv;
    if (query_norm_) {
      rotated = f.push(N, attention_.row_channels());
      f.ops->rotate_heads(qkv, f.rotations, attention_, norms, rotated);
    }
    f.ops->attention_backward(rotated, o, log_sum_exp, d_o, f.batch.starts, attention_, dropout(f), d_qkv,
                              attention_workspace(f, attention_, N, gate_up));
    f.ops->rotate_heads_backward(d_qkv, query_norm_ ? qkv : View{}, f.rotations, attention_, norms, d_qkv,
                                 head_norm_gradient(f, g, query_norm_), head_norm_gradient(f, g, key_norm_));
  }
  if (qkv_bias_) bias_gradients(f, {{d_qkv, joined(g, qkv_bias_)}});
  f.ops->linear_backward_input(d_qkv, joined(p, qkv_weight_), {}, {}, d_norm, {});
  norm1_->backward(f, p, g, d_norm, x, rstd1, d_mid, d_x, norm);
  weight_gradient(f, d_qkv, norm, joined(g, qkv_weight_));
}

}  // namespace tessera
