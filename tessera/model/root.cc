// N tokens, M rows with loss, m rows of one chunk of them, C channels, V vocabulary.
#include "tessera/model/root.h"

#include <algorithm>
#include <cmath>

namespace tessera {

Root::Root(const ModelConfig& config, const Names& names, Initializer embedding_init)
    : Unit("root"),
      vocab_size_(config.vocab_size),
      hidden_size_(config.hidden_size),
      head_bias_(!names.head_bias.empty()) {
  const int64_t C = hidden_size_;
  const double epsilon = config.layer_norm_epsilon;
  embedding_ = table_.add(names.embedding, {vocab_size_, C}, embedding_init, true);
  if (!names.embedding_norm.empty()) embedding_norm_.emplace(names.norm, table_, names.embedding_norm, C, epsilon);
  if (!names.final_norm.empty()) final_norm_.emplace(names.norm, table_, names.final_norm, C, epsilon);
  if (head_bias_) {  // as torch.nn.Linear initializes it
    const Initializer init{Initializer::Kind::uniform, 1 / std::sqrt(static_cast<double>(C)),
                           embedding_init.stream + 1};
    head_bias_handle_ = table_.add(names.head_bias, {vocab_size_}, init, false);
  }
}

void Root::embed_forward(Frame& f, const ParameterViews& p, View y, SavedViews* saved) const {
  if (!embedding_norm_) {
    f.ops->gather_rows(p[embedding_], f.batch.ids, y);
    return;
  }
  const View stats = saved ? embedding_norm_->push_stats(f, f.batch.num_tokens) : View{};
  f.ops->gather_rows(p[embedding_], f.batch.ids, y);
  embedding_norm_->forward(f, p, y, y, stats);
  if (saved) *saved = {stats};
}

void Root::embed_backward(Frame& f, const ParameterViews& p, const ParameterViews& g, const SavedViews& saved,
                          View d_y) const {
  const StackScope scope(f.stack);
  View d_e = d_y;  // [N, C]
  if (embedding_norm_) {
    const View e = f.push(f.batch.num_tokens, hidden_size_);  // looked up again, not kept
    f.ops->gather_rows(p[embedding_], f.batch.ids, e);
    d_e = f.push(f.batch.num_tokens, hidden_size_);
    embedding_norm_->backward(f, p, g, d_y, e, saved[0], {}, d_e, {});
  }
  f.ops->embedding_backward(f.batch.ids, d_e, g[embedding_]);
}

// Divides rows into chunks of equal size. Large chunks are full tiles of a product.
//
// More rows can give smaller chunks: `most` rows are one chunk, but one row more makes two chunks of half the size. If
// a frame represents smaller batches too, it therefore uses the largest chunk of any of them. That chunk never shrinks
// when `num_rows` or the height of the stack grows.
int64_t Root::chunk_rows(const Frame& f, int64_t num_rows) const {
  constexpr int64_t kTileRows = 128;
  const int64_t row_bytes = vocab_size_ * static_cast<int64_t>(size_of(f.dtype));
  const int64_t bytes = f.large_head_chunks ? std::max(f.head_chunk_bytes, f.stack.mark() / 4) : f.head_chunk_bytes;
  const int64_t most = std::max<int64_t>(16, bytes / row_bytes);
  if (num_rows <= most) return num_rows;
  const int64_t tile = f.large_head_chunks && most >= kTileRows ? kTileRows : 1;
  const auto whole_tiles = [tile](int64_t rows) { return (rows + tile - 1) / tile * tile; };
  if (f.stands_for_smaller) return std::min(num_rows, whole_tiles(most));
  const int64_t num_chunks = (num_rows + most - 1) / most;
  return whole_tiles((num_rows + num_chunks - 1) / num_chunks);
}

void Root::head_loss(Frame& f, const ParameterViews& p, View x, View loss) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = f.batch.num_targets, rows = chunk_rows(f, M);
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t m = std::min(rows, M - begin);
    const StackScope scope(f.stack);
    const View x_rows = f.push(m, hidden_size_), logits = f.push(m, vocab_size_);
    f.ops->gather_rows(x, f.batch.target_rows.rows(begin, begin + m), x_rows);
    head_logits(f, p, x_rows, logits);
    f.ops->softmax_cross_entropy(logits, f.batch.targets.rows(begin, begin + m), 0, loss);
  }
}

void Root::head_loss_backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, double scale,
                              View loss, View d_x) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = f.batch.num_targets, rows = chunk_rows(f, M), C = hidden_size_;
  if (M == 0 && f.fresh_gradients) f.ops->fill(g[embedding_], 0);
  const View d_rows = f.push(M, C);  // gradient for the rows with loss
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t m = std::min(rows, M - begin);
    const StackScope scope(f.stack);
    const View x_rows = f.push(m, C), logits = f.push(m, vocab_size_);
    f.ops->gather_rows(x, f.batch.target_rows.rows(begin, begin + m), x_rows);
    View z = x_rows, stats;  // [m, C] the input of the head's product
    if (final_norm_) {
      z = f.push(m, C);
      stats = final_norm_->push_stats(f, m);
      final_norm_->forward(f, p, x_rows, z, stats);
    }
    f.ops->linear_forward(z, p[embedding_], head_bias_ ? p[head_bias_handle_] : View{}, {}, {}, logits);
    f.ops->softmax_cross_entropy(logits, f.batch.targets.rows(begin, begin + m), scale, loss);
    f.ops->linear_backward_weight(logits, z, f.fresh_gradients && begin == 0, g[embedding_]);
    if (head_bias_) f.ops->linear_backward_bias({{{logits, g[head_bias_handle_]}}});
    const View d_z = d_rows.rows(begin, begin + m);
    f.ops->linear_backward_input(logits, p[embedding_], {}, {}, d_z, {});
    if (final_norm_) final_norm_->backward(f, p, g, d_z, x_rows, stats, {}, d_z, {});
  }
  f.ops->scatter_rows(d_rows, f.batch.target_rows, d_x);
}

void Root::head_argmax(Frame& f, const ParameterViews& p, View x, View ids) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = x.shape[0], rows = chunk_rows(f, M);
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t m = std::min(rows, M - begin);
    const StackScope scope(f.stack);
    const View logits = f.push(m, vocab_size_);
    head_logits(f, p, x.rows(begin, begin + m), logits);
    f.ops->argmax_rows(logits, ids.rows(begin, begin + m));
  }
}

void Root::head_logits(Frame& f, const ParameterViews& p, View x, View logits) const {
  const StackScope scope(f.stack);
  View z = x;
  if (final_norm_) {
    z = f.push(x.shape[0], hidden_size_);
    final_norm_->forward(f, p, x, z, {});
  }
  f.ops->linear_forward(z, p[embedding_], head_bias_ ? p[head_bias_handle_] : View{}, {}, {}, logits);
}

}  // namespace tessera
