// The block of BLOOM, as in modeling_bloom.py of transformers: a norm before attention and before the MLP, one product
// for queries, keys and values (interleaved by head), ALiBi and GELU.
#pragma once

#include "tessera/model/config.h"
#include "tessera/model/linear.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

// Returns one ALiBi slope for each head (Press et al. 2022), computed as in modeling_bloom.py.
std::vector<float> alibi_slopes(int64_t num_heads);

class BloomBlock final : public Block {
 public:
  // `alibi`: the slopes, [H] f32 on the device. It must outlive the block.
  BloomBlock(const ModelConfig& config, int64_t layer, View alibi);
  void forward(Frame& frame, const ParameterViews& p, View x, View y, SavedViews* saved) const override;
  void backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, const SavedViews& saved,
                View d_y, View d_x) const override;
  std::vector<Linear*> linear_layers() override { return {&qkv_, &dense_, &up_, &down_}; }

 private:
  int64_t layer_, hidden_size_, num_heads_;
  double hidden_dropout_, attention_dropout_;
  bool residual_from_norm_;
  AttentionShape attention_;
  Norm norm1_, norm2_;
  Linear qkv_, dense_, up_, down_;
};

}  // namespace tessera
