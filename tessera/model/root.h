// The root unit: token embedding, the norm of its output (only BLOOM), and the tensors of a tied head.
#pragma once

#include "tessera/model/head.h"

namespace tessera {

class Root final : public Unit {
 public:
  struct Names {  // of the tensors; empty: the architecture has no such tensor
    std::string_view embedding, embedding_norm = {};
  };
  // With `head`, the head is tied: its weight is the embedding, and its other tensors join the root's table.
  Root(const ModelConfig& config, const Names& names, const Initializer& embedding_init, const Head::Parts* head);

  // Computes y [N, C] from frame.batch.ids. With `saved`, the views for backward stay on the stack.
  void embed_forward(Frame& frame, const ParameterViews& p, View y, SavedViews* saved) const;
  // Adds to the gradients g. Exception: if frame.fresh_gradients is true and the root has no head, overwrites the
  // gradient of the embedding, because its contents are unspecified before the call.
  void embed_backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, const SavedViews& saved,
                      View d_y) const;

  bool embedding_trains() const;  // whether embed_backward() has any gradient to compute

  const std::optional<Head>& tied_head() const { return head_; }
  std::vector<Linear*> linear_layers() override {
    return head_ ? std::vector<Linear*>{&head_->linear()} : std::vector<Linear*>{};
  }

 private:
  int64_t hidden_size_;
  ParameterTable::Handle embedding_ = 0;
  std::optional<Norm> norm_;  // of the embedding
  std::optional<Head> head_;
};

}  // namespace tessera
