// The root unit: token embedding (with BLOOM's norm on it), final norm (BLOOM) and the tied head (with gpt's bias).
#pragma once

#include <optional>

#include "tessera/model/config.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

class Root final : public Unit {
 public:
  struct Names {  // of the tensors; empty: the architecture has no such tensor
    std::string embedding, embedding_norm, final_norm, head_bias;
    Norm::Kind norm = Norm::Kind::layer;
  };
  Root(const ModelConfig& config, const Names& names, Initializer embedding_init);

  // Computes y [N, C] from frame.batch.ids. With `saved`, the views for backward stay on the stack.
  void embed_forward(Frame& frame, const ParameterViews& p, View y, SavedViews* saved) const;
  void embed_backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, const SavedViews& saved,
                      View d_y) const;

  // Adds the summed cross-entropy of the batch's targets to loss [1] f64, from x [N, C]. Processes only rows with loss,
  // in chunks. [N, V] logits never exist.
  void head_loss(Frame& frame, const ParameterViews& p, View x, View loss) const;
  // The same. Also computes d_x [N, C] and the gradients g of `scale` times that loss.
  void head_loss_backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, double scale,
                          View loss, View d_x) const;
  // Writes to ids [M] i32 the most likely next token after each of the rows x [M, C].
  void head_argmax(Frame& frame, const ParameterViews& p, View x, View ids) const;
  // Writes the logits [M, V] of the rows x [M, C]. For tests and small inputs.
  void head_logits(Frame& frame, const ParameterViews& p, View x, View logits) const;

 private:
  int64_t chunk_rows(const Frame& frame, int64_t num_rows) const;

  int64_t vocab_size_, hidden_size_;
  bool head_bias_;
  ParameterTable::Handle embedding_ = 0, head_bias_handle_ = 0;
  std::optional<Norm> embedding_norm_, final_norm_;
};

}  // namespace tessera
