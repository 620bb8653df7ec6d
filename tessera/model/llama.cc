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
  uint64_t stream = first_stream(layer);
  const auto part = [&](const char* name, int64_t out, bool has_bias) {
    const Initializer init{Initializer::Kind::normal, config.initializer_range, stream++};
    const std::string bias = has_bias ? fmt::format("{}{}.bias", prefix, name) : "";
    return Linear::Part{fmt::format("{}{}.weight", prefix, name), init, bias, {}, out};
  };
  const auto norm = [&](const char* name) { return Norm(Norm::Kind::rms, table_, prefix + name, C, epsilon_); };
  // The norms come first, as in the checkpoints of earlier versions.
  norm1_ = norm("input_layernorm");
  norm2_ = norm("post_attention_layernorm");
  const bool qkv_bias = config.qkv_bias, mlp_bias = config.mlp_bias;
  const Linear::Part q = part("self_attn.q_proj", queries, qkv_bias), k = part("self_attn.k_proj", keys, qkv_bias),
                     v = part("self_attn.v_proj", keys, qkv_bias);
  qkv_ = Linear(table_, {q, k, v}, C);
  o_ = Linear(table_, {part("self_attn.o_proj", C, config.o_bias)}, queries);
  const Linear::Part gate = part("mlp.gate_proj", F, mlp_bias), up = part("mlp.up_proj", F, mlp_bias);
  gate_up_ = Linear(table_, {gate, up}, C);
  down_ = Linear(table_, {part("mlp.down_proj", C, mlp_bias)}, F);
  if (config.head_norms) {
    const Initializer one{Initializer::Kind::one};
    query_norm_ = table_.add(prefix + "self_attn.q_norm.weight", {D}, one, false);
    key_norm_ = table_.add(prefix + "self_attn.k_norm.weight", {D}, one, false);
  }
}

HeadNorms LlamaBlock::head_norms(const ParameterViews& p) const {
  if (!query_norm_) return {};
  return {p[*query_norm_], p[*key_norm_], epsilon_};
}

// If the heads have norms, the kernel always sums the gradients of both norms (of queries and of keys). The sum of a
// frozen norm goes to the stack and is not used.
View LlamaBlock::head_norm_gradient(Frame& f, const ParameterViews& g,
                                    const std::optional<ParameterTable::Handle>& tensor) const {
  return tensor ? or_unwanted(f, g[*tensor], attention_.head_dim, f.dtype) : View{};
}

// Applies the norms and the rotation to the queries and keys of qkv [N, W]. If the heads have no norms, this happens in
// place. If the heads have norms, the result goes to the stack, because backward needs the rows of qkv as they were
// before the norms.
View LlamaBlock::rotate(Frame& f, const ParameterViews& p, View qkv) const {
  const View rotated = query_norm_ ? f.push(qkv.shape[0], qkv.shape[1]) : qkv;
  f.ops->rotate_heads(
      {.qkv = qkv, .rotations = f.rotations, .shape = attention_, .norms = head_norms(p), .y = rotated});
  return rotated;
}

void LlamaBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View rstd1 = norm1_.push_stats(f, N), qkv = f.push(N, attention_.row_channels()), mid = f.push(N, C),
             rstd2 = norm2_.push_stats(f, N);
  View log_sum_exp, o, gate_up;
  const int64_t kept = push_parts(
      f, [&] { log_sum_exp = f.push_stats(N, attention_.num_heads), o = f.push(N, attention_.channels()); },
      [&] { gate_up = f.push(N, 2 * ff_dim_); });
  const View norm = f.push(N, C);

  norm1_.forward(f, p, x, norm, rstd1);
  qkv_.forward(f, p, norm, qkv);
  {
    const StackScope scope(f.stack);
    attend(f, layer_, rotate(f, p, qkv), attention_, dropout(f), o, log_sum_exp);
  }
  o_.forward(f, p, o, mid, {Activation::none, {}, x});

  norm2_.forward(f, p, mid, norm, rstd2);
  gate_up_.forward(f, p, norm, gate_up);
  if (y) {
    const View h = f.push(N, ff_dim_);
    f.ops->gated_forward(gate_up, activation_, h);
    down_.forward(f, p, h, y, {Activation::none, {}, mid});
  }

  if (f.recomputed.attention) log_sum_exp = o = {};
  if (f.recomputed.mlp) gate_up = {};
  if (saved) *saved = {rstd1, qkv, log_sum_exp, o, mid, rstd2, gate_up};
  f.stack.pop_to(saved ? kept : floor);
}

void LlamaBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                          View d_y, View d_x) const {
  const auto& [rstd1, qkv, kept_log_sum_exp, kept_o, mid, rstd2, kept_gate_up, unused] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  // `norm` gets the output of norm2 again, and later the output of norm1, because forward does not save them.
  const View d_mid = f.push(N, C), norm = f.push(N, C), d_norm = f.push(N, C);
  {
    const StackScope scope(f.stack);
    const View gate_up = kept_gate_up ? kept_gate_up : f.push(N, 2 * ff_dim_);
    if (!kept_gate_up) {
      norm2_.forward(f, p, mid, norm, rstd2);
      gate_up_.forward(f, p, norm, gate_up);
    }
    const View d_h = f.push(N, ff_dim_), h = d_h, d_gate_up = gate_up;  // gated_backward overwrites its inputs
    const Linear::Upstream d_down = down_.upstream(f, p, d_y);
    down_.backward_input(f, p, d_down, d_h);
    f.ops->gated_backward({.d_h = d_h, .gate_up = gate_up, .activation = activation_, .d_gate_up = d_gate_up, .h = h});
    down_.backward_weight(f, p, g, d_down, h);
    bias_gradients(f, {down_.bias_gradient(g, d_y), gate_up_.bias_gradient(g, d_gate_up)});
    const Linear::Upstream d_inner = gate_up_.upstream(f, p, d_gate_up);
    gate_up_.backward_input(f, p, d_inner, d_norm);
    norm2_.backward(f, p, g, {.d_y = d_norm, .x = mid, .stats = rstd2, .residual = d_y, .d_x = d_mid, .y = norm});
    gate_up_.backward_weight(f, p, g, d_inner, norm);
  }

  const View d_o = f.push(N, attention_.channels()), d_qkv = f.push(N, attention_.row_channels());
  View log_sum_exp = kept_log_sum_exp, o = kept_o;
  if (!o) {
    log_sum_exp = f.push_stats(N, attention_.num_heads), o = f.push(N, attention_.channels());
    const StackScope scope(f.stack);
    attend(f, layer_, query_norm_ ? rotate(f, p, qkv) : qkv, attention_, dropout(f), o, log_sum_exp);
  }
  {
    const StackScope scope(f.stack);
    const Linear::Upstream d_out = o_.upstream(f, p, d_mid);
    o_.backward_weight(f, p, g, d_out, o);
    bias_gradients(f, {o_.bias_gradient(g, d_mid)});
    o_.backward_input(f, p, d_out, d_o);
  }
  {
    const StackScope scope(f.stack);
    f.ops->attention_backward({.qkv = query_norm_ ? rotate(f, p, qkv) : qkv,
                               .o = o,
                               .log_sum_exp = log_sum_exp,
                               .d_o = d_o,
                               .starts = f.batch.starts,
                               .shape = attention_,
                               .dropout = dropout(f),
                               .d_qkv = d_qkv,
                               .workspace = attention_workspace(f, attention_, N, kept_gate_up)});
    f.ops->rotate_heads_backward({.d_y = d_qkv,
                                  .qkv = query_norm_ ? qkv : View{},
                                  .rotations = f.rotations,
                                  .shape = attention_,
                                  .norms = head_norms(p),
                                  .d_qkv = d_qkv,
                                  .d_query_weight = head_norm_gradient(f, g, query_norm_),
                                  .d_key_weight = head_norm_gradient(f, g, key_norm_)});
  }
  bias_gradients(f, {qkv_.bias_gradient(g, d_qkv)});
  const Linear::Upstream d_heads = qkv_.upstream(f, p, d_qkv);
  qkv_.backward_input(f, p, d_heads, d_norm);
  norm1_.backward(f, p, g, {.d_y = d_norm, .x = x, .stats = rstd1, .residual = d_mid, .d_x = d_x, .y = norm});
  qkv_.backward_weight(f, p, g, d_heads, norm);
}

}  // namespace tessera
