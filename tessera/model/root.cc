// Letters in shapes: N tokens, C channels.
#include "tessera/model/root.h"

namespace tessera {

Root::Root(const ModelConfig& config, const Names& names, const Initializer& embedding_init, const Head::Parts* head)
    : Unit("root"), hidden_size_(config.hidden_size) {
  const int64_t C = hidden_size_;
  embedding_ = table_.add(std::string(names.embedding), {config.vocab_size, C}, embedding_init, true);
  if (!names.embedding_norm.empty()) {
    norm_.emplace(Norm::Kind::layer, table_, std::string(names.embedding_norm), C, config.layer_norm_epsilon);
  }
  if (head) head_.emplace(config, *head, table_, embedding_init, embedding_);
}

void Root::embed_forward(Frame& f, const ParameterViews& p, View y, SavedViews* saved) const {
  f.ops->gather_rows(p[embedding_], f.batch.ids, y);
  if (!norm_) return;
  const View stats = saved ? norm_->push_stats(f, f.batch.num_tokens) : View{};
  norm_->forward(f, p, y, y, stats);
  if (saved) *saved = {stats};
}

void Root::embed_backward(Frame& f, const ParameterViews& p, const ParameterViews& g, const SavedViews& saved,
                          View d_y) const {
  const StackScope scope(f.stack);
  View d_e = d_y;  // [N, C]
  if (norm_) {
    const View e = f.push(f.batch.num_tokens, hidden_size_);  // gathered again, because forward does not keep it
    f.ops->gather_rows(p[embedding_], f.batch.ids, e);
    d_e = f.push(f.batch.num_tokens, hidden_size_);
    norm_->backward(f, p, g, {.d_y = d_y, .x = e, .stats = saved[0], .d_x = d_e});
  }
  if (!g[embedding_]) return;
  // embedding_backward() adds to the gradient. A tied head (head_) has already written its own part there. If there
  // is no tied head, a gradient that holds no sums yet must first be set to 0.
  if (!head_ && f.fresh_gradients) f.ops->fill(g[embedding_], 0);
  f.ops->embedding_backward(f.batch.ids, d_e, g[embedding_]);
}

bool Root::embedding_trains() const {
  return table_.specs()[embedding_].trainable() || (norm_ && norm_->trains(table_));
}

}  // namespace tessera
