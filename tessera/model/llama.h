// The block of Llama, Mistral, Qwen2 and Qwen3 (transformers, modeling_llama.py and its variants): pre-norm, rotary
// positions, grouped-query attention (several heads of queries may use the same head of keys and values), gated
// feed-forward layer. Qwen3 applies a norm to each head of queries and keys.
#pragma once

#include <optional>

#include "tessera/model/config.h"
#include "tessera/model/linear.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

class LlamaBlock final : public Block {
 public:
  LlamaBlock(const ModelConfig& config, int64_t layer);
  void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const override;
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                View d_y, View d_x) const override;
  std::vector<Linear*> linear_layers() override { return {&qkv_, &o_, &gate_up_, &down_}; }

 private:
  Dropout dropout(const Frame& f) const { return f.dropout(attention_dropout_, layer_, 0); }
  HeadNorms head_norms(const ParameterViews& p) const;
  bool gates_in_float8(const Frame& frame) const;
  View rotate(Frame& frame, const ParameterViews& p, View qkv) const;
  View head_norm_gradient(Frame& frame, const ParameterViews& g,
                          const std::optional<ParameterTable::Handle>& tensor) const;

  int64_t layer_, hidden_size_, ff_dim_;
  double epsilon_, attention_dropout_;
  Activation activation_;
  AttentionShape attention_;
  Norm norm1_, norm2_;
  Linear qkv_, o_, gate_up_, down_;  // qkv_ and gate_up_ have joined tensors
  std::optional<ParameterTable::Handle> query_norm_, key_norm_;
};

}  // namespace tessera
