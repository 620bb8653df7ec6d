// The head: the final norm, and the product with the weight [V, C], which gives one logit for each token of the
// vocabulary. A tied head is a part of the root, and its weight is the embedding. An untied head is the last unit of
// the model.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/model/config.h"
#include "tessera/model/linear.h"
#include "tessera/model/norm.h"
#include "tessera/model/unit.h"

namespace tessera {

inline constexpr std::string_view kHeadWeight = "lm_head.weight";  // in all architectures of transformers

class Head {
 public:
  // What the head of an architecture consists of. An empty name means that the architecture has no such tensor.
  struct Parts {
    std::string_view final_norm = {};  // the names of the norm's tensors, without ".weight" and ".bias"
    Norm::Kind norm = Norm::Kind::layer;
    std::string_view weight = {};  // only used if the head is not tied
    std::string_view bias = {};
    bool like_linear = false;  // initialize an untied weight like torch.nn.Linear's, not like the embedding
  };
  // Adds the head's tensors to the table of its unit. The weight is the tensor `tied` of this table, or a new tensor if
  // `tied` is empty.
  Head(const ModelConfig& config, const Parts& parts, ParameterTable& table, const Initializer& embedding_init,
       std::optional<ParameterTable::Handle> tied);

  // In all functions below, p and g are the parameters and gradients of the unit that holds the head's tensors. N is
  // the number of tokens in the batch, C the number of channels, and V the size of the vocabulary.

  // Computes the cross-entropy of the batch's targets from x [N, C], and adds its sum to loss [1] f64. Processes only
  // rows with loss, in chunks, so the memory never holds all logits [N, V] at once.
  void loss(Frame& frame, const ParameterViews& p, View x, View loss) const;
  // Adds to loss as loss() does. Also computes d_x [N, C], and adds the gradients of the parameters to g. d_x and these
  // gradients are the derivatives of `scale` times the loss.
  void loss_backward(Frame& frame, const ParameterViews& p, const ParameterViews& g, View x, double scale, View loss,
                     View d_x) const;
  // Writes to ids [M] i32 the most likely next token after each of the rows x [M, C].
  void argmax(Frame& frame, const ParameterViews& p, View x, View ids) const;
  // Writes to ids [M] i32 a next token after each of the rows x [M, C], drawn with the random numbers draws [M] i64.
  void sample(Frame& frame, const ParameterViews& p, View x, View draws, const Sampling& sampling, View ids) const;
  // Writes the logits [M, V] of the rows x [M, C] without chunks.
  void logits(Frame& frame, const ParameterViews& p, View x, View logits) const;

  Linear& linear() { return linear_; }

 private:
  using Handle = ParameterTable::Handle;

  int64_t chunk_rows(const Frame& frame, int64_t num_rows, bool sums_weight_gradient = true) const;
  // Divides the rows x [M, C] into chunks [begin, end) and calls body(logits [end - begin, V], begin, end) for each.
  template <typename Body>
  void for_logits(Frame& frame, const ParameterViews& p, View x, const Body& body) const;

  int64_t vocab_size_, hidden_size_;
  Handle weight_ = 0;
  Linear linear_;
  std::optional<Norm> norm_;
};

// An untied head.
class HeadUnit final : public Unit {
 public:
  HeadUnit(const ModelConfig& config, const Head::Parts& parts, const Initializer& embedding_init)
      : Unit("head"), head_(config, parts, table_, embedding_init, std::nullopt) {}
  const Head& head() const { return head_; }
  std::vector<Linear*> linear_layers() override { return {&head_.linear()}; }

 private:
  Head head_;
};

}  // namespace tessera
