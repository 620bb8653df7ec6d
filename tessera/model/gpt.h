// The block of model type "gpt". It computes the same as torch.nn.TransformerEncoderLayer with ReLU, post-norm (each
// norm follows a residual sum) and a causal mask. It does not use the positions of tokens.
#pragma once

#include "tessera/model/config.h"
#include "tessera/model/linear.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

class GptBlock final : public Block {
 public:
  GptBlock(const ModelConfig& config, int64_t layer);
  void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const override;
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                View d_y, View d_x) const override;
  std::vector<Linear*> linear_layers() override { return {&in_, &out_, &up_, &down_}; }

 private:
  Dropout dropout(const Frame& f, uint32_t site) const { return f.dropout(rate_, layer_, site); }

  int64_t layer_, hidden_size_, num_heads_, ff_dim_;
  double rate_;
  AttentionShape attention_;
  Linear in_, out_, up_, down_;
  Norm norm1_, norm2_;
};

}  // namespace tessera
