// The block of Llama, Mistral, Qwen2 and Qwen3 (transformers, modeling_llama.py and its variants): pre-norm, rotary
// positions, grouped-query attention (several heads of queries may use the same head of keys and values), gated
// feed-forward layer. Qwen3 applies a norm to each head of queries and keys.
#pragma once

#include <optional>

#include "tessera/model/config.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

// The tensors of the block's ParameterTable from `first` to `last` (inclusive). They belong to linear layers with the
// same input, so kernels use them as one tensor.
struct JoinedTensors {
  ParameterTable::Handle first = 0, last = 0;
};

class LlamaBlock final : public Block {
 public:
  LlamaBlock(const ModelConfig& config, int64_t layer);
  void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const override;
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                View d_y, View d_x) const override;

 private:
  using Views = ParameterViews;
  Dropout dropout(const Frame& frame) const;
  HeadNorms head_norms(const Views& p) const;
  View head_norm_gradient(Frame& frame, const Views& g, const std::optional<ParameterTable::Handle>& tensor) const;
  static View joined(const Views& p, const JoinedTensors& tensors) { return p.joined(tensors.first, tensors.last); }
  static View joined(const Views& p, const std::optional<JoinedTensors>& tensors) {
    return tensors ? joined(p, *tensors) : View{};
  }
  static View optional(const Views& p, const std::optional<ParameterTable::Handle>& tensor) {
    return tensor ? p[*tensor] : View{};
  }

  int64_t layer_, hidden_size_, ff_dim_;
  double epsilon_, attention_dropout_;
  Activation activation_;
  AttentionShape attention_;
  JoinedTensors qkv_weight_, gate_up_weight_;
  ParameterTable::Handle o_weight_, down_weight_;
  std::optional<JoinedTensors> qkv_bias_, gate_up_bias_;
  std::optional<ParameterTable::Handle> o_bias_, down_bias_, query_norm_, key_norm_;
  std::optional<Norm> norm1_, norm2_;
};

}  // namespace tessera
