// Letters in shapes: N tokens, C channels.
#include "tessera/model/root.h"

namespace tessera {

Root::Root(const ModelConfig& config, const Names& names, const Initializer& embedding_init, const Head::Parts* head)
    : Unit("root"),
      hidden_size_(config.hidden_size),
      epsilon_(config.layer_norm_epsilon),
      embedding_norm_(!names.embedding_norm.empty()) {
  const int64_t C = hidden_size_;
  embedding_ = table_.add(names.embedding, {config.vocab_size, C}, embedding_init, true);
  if (embedding_norm_) {
    embedding_norm_weight_ = table_.add(names.embedding_norm + ".weight", {C}, {Initializer::Kind::one}, false);
    embedding_norm_bias_ = table_.add(names.embedding_norm + ".bias", {C}, {}, false);
  }
  if (head) head_.emplace(config, *head, table_, embedding_init, embedding_);
}

void Root::embed_forward(Frame& f, const ParameterViews& p, View y, SavedViews* saved) const {
  if (!embedding_norm_) {
    f.ops->gather_rows(p[embedding_], f.batch.ids, y);
    return;
  }
  const View stats = saved ? f.push_stats(f.batch.num_tokens, 2) : View{};  // [N, 2]
  f.ops->gather_rows(p[embedding_], f.batch.ids, y);
  f.ops->layer_norm_forward(y, p[embedding_norm_weight_], p[embedding_norm_bias_], epsilon_, y, stats);
  if (saved) *saved = {stats};
}

void Root::embed_backward(Frame& f, const ParameterViews& p, const ParameterViews& g, const SavedViews& saved,
                          View d_y) const {
  const StackScope scope(f.stack);
  View d_e = d_y;  // [N, C]
  if (embedding_norm_) {
    const View e = f.push(f.batch.num_tokens, hidden_size_);  // gathered again, because forward does not keep it
    f.ops->gather_rows(p[embedding_], f.batch.ids, e);
    d_e = f.push(f.batch.num_tokens, hidden_size_);
    norm_backward(f, d_y, e, p[embedding_norm_weight_], {}, saved[0], {}, d_e, g[embedding_norm_weight_],
                  g[embedding_norm_bias_], {});
  }
  if (!g[embedding_]) return;
  // embedding_backward() adds to the gradient. A tied head (head_) has already written its own part there. If there
  // is no tied head, a gradient that holds no sums yet must first be set to 0.
  if (!head_ && f.fresh_gradients) f.ops->fill(g[embedding_], 0);
  f.ops->embedding_backward(f.batch.ids, d_e, g[embedding_]);
}

bool Root::embedding_trains() const {
  const auto trains = [&](ParameterTable::Handle handle) { return table_.specs()[handle].trainable; };
  return trains(embedding_) || (embedding_norm_ && (trains(embedding_norm_weight_) || trains(embedding_norm_bias_)));
}

}  // namespace tessera
