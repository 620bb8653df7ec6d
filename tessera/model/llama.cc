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

// Whether the kernels of the gated layer round their results to 8 bits. Backward then keeps gate and up in 8 bits, too.
// A gradient of a bias needs the gradients of gate and up in 16 bits.
bool LlamaBlock::gates_in_float8(const Frame& f) const {
  return gate_up_.reads_only_float8(f) && down_.reads_only_float8(f) && !gate_up_.has_bias() &&
         ff_dim_ % kFloat8Block == 0;
}

void LlamaBlock::forward(Frame& f, const ParameterViews& p, View x, View y, SavedViews* saved) const {
  const int64_t N = x.shape[0], C = hidden_size_, floor = f.stack.mark();
  const View rstd1 = norm1_.push_stats(f, N), qkv = f.push(N, attention_.row_channels()), mid = f.push(N, C),
             rstd2 = norm2_.push_stats(f, N);
  const int64_t F = ff_dim_;
  const bool in_float8 = gates_in_float8(f), keeps8 = in_float8 && saved && !f.recomputed.mlp;
  View log_sum_exp, o, gate_up;
  Float8Matrix gate_up8;
  const int64_t kept = push_parts(
      f, [&] { log_sum_exp = f.push_stats(N, attention_.num_heads), o = f.push(N, attention_.channels()); },
      [&] {
        if (!in_float8) gate_up = f.push(N, 2 * F);
        if (keeps8) gate_up8 = push_float8(f, N, 2 * F, false);
      });
  {
    const StackScope scope(f.stack);
    const LinearInput a = qkv_.push_input(f, N, C);
    norm1_.forward(f, p, x, a, rstd1);
    qkv_.forward(f, p, a, qkv);
  }
  {
    const StackScope scope(f.stack);
    attend(f, layer_, rotate(f, p, qkv), attention_, dropout(f), o, log_sum_exp);
  }
  o_.forward(f, p, o, mid, {Activation::none, {}, x});

  if (in_float8) gate_up = f.push(N, 2 * F);
  {
    const StackScope scope(f.stack);
    const LinearInput b = gate_up_.push_input(f, N, C);
    norm2_.forward(f, p, mid, b, rstd2);
    gate_up_.forward(f, p, b, gate_up);
  }
  if (y) {
    const LinearInput h = in_float8 ? down_.push_input(f, N, F) : f.push(N, F);
    if (in_float8) {
      f.ops->gated_forward8({.gate_up = gate_up, .activation = activation_, .h = h.rows, .rounded = gate_up8});
    } else {
      f.ops->gated_forward(gate_up, activation_, h.x);
    }
    down_.forward(f, p, h, y, {Activation::none, {}, mid});
  } else if (keeps8) {
    f.ops->quantize({.x = gate_up, .rows = gate_up8});
  }

  if (f.recomputed.attention) log_sum_exp = o = {};
  if (f.recomputed.mlp) gate_up = {};
  if (in_float8) gate_up = gate_up8.values;
  if (saved) *saved = {rstd1, qkv, log_sum_exp, o, mid, rstd2, gate_up, gate_up8.scales};
  f.stack.pop_to(saved ? kept : floor);
}

void LlamaBlock::backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                          View d_y, View d_x) const {
  const auto& [rstd1, qkv, kept_log_sum_exp, kept_o, mid, rstd2, kept_gate_up, kept_scales] = saved;
  const StackScope outer_scope(f.stack);
  const int64_t N = x.shape[0], C = hidden_size_;
  const View d_mid = f.push(N, C), d_norm = f.push(N, C);
  {
    const StackScope scope(f.stack);
    const int64_t F = ff_dim_;
    const bool in_float8 = gates_in_float8(f);
    View gate_up = kept_gate_up;
    Float8Matrix gate_up8{kept_gate_up, kept_scales};
    if (!kept_gate_up) {
      if (in_float8) {
        gate_up8 = push_float8(f, N, 2 * F, false);
      } else {
        gate_up = f.push(N, 2 * F);
      }
      const StackScope scope_of_input(f.stack);
      if (in_float8) gate_up = f.push(N, 2 * F);  // only until it is rounded
      const LinearInput b = gate_up_.push_input(f, N, C);
      norm2_.forward(f, p, mid, b, rstd2);
      gate_up_.forward(f, p, b, gate_up);
      if (in_float8) f.ops->quantize({.x = gate_up, .rows = gate_up8});
    }
    const View d_h = f.push(N, F), d_gate_up = gate_up;  // gated_backward overwrites its inputs
    const Linear::Upstream d_down = down_.upstream(f, p, d_y);
    down_.backward_input(f, p, d_down, d_h);
    const LinearInput h = in_float8 ? down_.push_input_again(f, p, N, F) : d_h;
    Linear::Upstream d_inner;
    if (in_float8) {
      d_inner = gate_up_.push_upstream8(f, p, N, 2 * F);
      f.ops->gated_backward8({.d_h = d_h,
                              .gate_up = gate_up8,
                              .activation = activation_,
                              .d_gate_up_rows = d_inner.rows,
                              .d_gate_up_columns = d_inner.columns,
                              .h_columns = h.columns});
    } else {
      f.ops->gated_backward(
          {.d_h = d_h, .gate_up = gate_up, .activation = activation_, .d_gate_up = d_gate_up, .h = h.x});
    }
    down_.backward_weight(f, p, g, d_down, h);
    if (!in_float8) {
      bias_gradients(f, {down_.bias_gradient(g, d_y), gate_up_.bias_gradient(g, d_gate_up)});
      d_inner = gate_up_.upstream(f, p, d_gate_up);
    } else {
      bias_gradients(f, {down_.bias_gradient(g, d_y)});
    }
    gate_up_.backward_input(f, p, d_inner, d_norm);
    const LinearInput b = gate_up_.push_input_again(f, p, N, C);
    norm2_.backward(f, p, g, {.d_y = d_norm, .x = mid, .stats = rstd2, .residual = d_y, .d_x = d_mid, .y = b});
    gate_up_.backward_weight(f, p, g, d_inner, b);
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
  const LinearInput a = qkv_.push_input_again(f, p, N, C);
  norm1_.backward(f, p, g, {.d_y = d_norm, .x = x, .stats = rstd1, .residual = d_mid, .d_x = d_x, .y = a});
  qkv_.backward_weight(f, p, g, d_heads, a);
}

}  // namespace tessera
