// Letters: M rows to process (for losses: the rows with loss), m of these rows in one chunk, C channels, V tokens of
// the vocabulary.
#include "tessera/model/head.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/math.h"

namespace tessera {

Head::Head(const ModelConfig& config, const Parts& parts, ParameterTable& table, const Initializer& embedding_init,
           std::optional<Handle> tied)
    : vocab_size_(config.vocab_size), hidden_size_(config.hidden_size) {
  const int64_t C = hidden_size_;
  // The initial values of the bias and of the weight in torch.nn.Linear.
  const auto linear = [&](uint64_t stream) -> Initializer {
    return {Initializer::Kind::uniform, 1 / std::sqrt(static_cast<double>(C)), stream};
  };
  if (tied) {
    weight_ = *tied;
  } else {
    const uint64_t stream = embedding_init.stream + 2;
    const Initializer init =
        parts.like_linear ? linear(stream) : Initializer{embedding_init.kind, embedding_init.scale, stream};
    weight_ = table.add(std::string(parts.weight), {vocab_size_, C}, init, true);
  }
  if (!parts.final_norm.empty()) {
    norm_.emplace(parts.norm, table, std::string(parts.final_norm), C, config.layer_norm_epsilon);
  }
  std::optional<Handle> bias;
  if (!parts.bias.empty())
    bias = table.add(std::string(parts.bias), {vocab_size_}, linear(embedding_init.stream + 1), false);
  linear_ = Linear(layer_of_tensor(parts.weight), weight_, bias);
}

// Returns the number of rows per chunk. All chunks have this size, except the last one, which may be smaller. `most` is
// the number of rows whose logits fit into the frame's limit, but at least 16. If `most` is 128 or more on a GPU, the
// size of a chunk is rounded up to full tiles of a matrix product, with 128 rows each. Few large chunks are faster if
// the weight is trained, because each chunk of a training step reads and writes its complete gradient.
//
// A batch with more rows can have smaller chunks: `most` rows are one chunk, but `most` + 1 rows are two chunks of
// about half the size. If the memory of this frame must also be enough for all smaller batches (stands_for_smaller),
// the function therefore returns the size of the largest chunk that this batch or a smaller batch can have. This size
// never shrinks when `num_rows` or the height of the stack grows.
int64_t Head::chunk_rows(const Frame& f, int64_t num_rows, bool sums_weight_gradient) const {
  constexpr int64_t kTileRows = 128;
  const int64_t row_bytes = vocab_size_ * static_cast<int64_t>(size_of(f.dtype));
  const bool grows = f.large_head_chunks && sums_weight_gradient;
  const int64_t bytes = grows ? std::max(f.head_chunk_bytes, f.stack.mark() / 4) : f.head_chunk_bytes;
  const int64_t most = std::max<int64_t>(16, bytes / row_bytes);
  if (num_rows <= most) return num_rows;
  const int64_t tile = f.large_head_chunks && most >= kTileRows ? kTileRows : 1;
  const auto whole_tiles = [tile](int64_t rows) { return round_up(rows, tile); };
  if (f.stands_for_smaller) return std::min(num_rows, whole_tiles(most));
  const int64_t num_chunks = ceil_divide(num_rows, most);
  return whole_tiles(ceil_divide(num_rows, num_chunks));
}

namespace {

// The loss of the batch's targets [begin, begin + m) with the logits [m, V], which become its gradient if scale ≠ 0.
void loss_of_chunk(Frame& f, View logits, int64_t begin, double scale, View loss) {
  if (f.own_loss) return f.own_loss->compute(logits, begin, scale, loss);
  f.ops->softmax_cross_entropy(logits, f.batch.targets.rows(begin, begin + logits.shape[0]), scale, loss);
}

}  // namespace

void Head::loss(Frame& f, const ParameterViews& p, View x, View loss) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = f.batch.num_targets, rows = chunk_rows(f, M);
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t m = std::min(rows, M - begin);
    const StackScope scope(f.stack);
    const View x_rows = f.push(m, hidden_size_), chunk_logits = f.push(m, vocab_size_);
    f.ops->gather_rows(x, f.batch.target_rows.rows(begin, begin + m), x_rows);
    logits(f, p, x_rows, chunk_logits);
    loss_of_chunk(f, chunk_logits, begin, 0, loss);
  }
}

void Head::loss_backward(Frame& f, const ParameterViews& p, const ParameterViews& g, View x, double scale, View loss,
                         View d_x) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = f.batch.num_targets, rows = chunk_rows(f, M, static_cast<bool>(g[weight_])), C = hidden_size_;
  if (M == 0 && f.fresh_gradients) linear_.clear_gradients(f, g);
  const View d_rows = f.push(M, C);  // gradients of the rows with loss
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t m = std::min(rows, M - begin);
    const StackScope scope(f.stack);
    const View x_rows = f.push(m, C), chunk_logits = f.push(m, vocab_size_);
    f.ops->gather_rows(x, f.batch.target_rows.rows(begin, begin + m), x_rows);
    View z = x_rows, stats;  // z [m, C]: the input of the product with the head's weight
    if (norm_) {
      z = f.push(m, C);
      stats = norm_->push_stats(f, m);
      norm_->forward(f, p, x_rows, z, stats);
    }
    if (linear_.has_dropout() && f.training) {
      const View ids = f.batch.row_ids, of_chunk = f.stack.push({m, 1}, DType::i64);
      f.ops->gather_rows({ids.data, DType::i64, {ids.num_elems(), 1}}, f.batch.target_rows.rows(begin, begin + m),
                         of_chunk);
      f.chunk_row_ids = {of_chunk.data, DType::i64, {m}};
    }
    linear_.forward(f, p, z, chunk_logits);
    loss_of_chunk(f, chunk_logits, begin, scale, loss);
    const Linear::Upstream d_logits = linear_.upstream(f, p, chunk_logits);
    linear_.backward_weight(f, p, g, d_logits, z, f.fresh_gradients && begin == 0);
    bias_gradients(f, {linear_.bias_gradient(g, chunk_logits)});
    const View d_z = d_rows.rows(begin, begin + m);
    linear_.backward_input(f, p, d_logits, d_z);
    f.chunk_row_ids = {};
    if (norm_) norm_->backward(f, p, g, {.d_y = d_z, .x = x_rows, .stats = stats, .d_x = d_z});
  }
  f.ops->scatter_rows(d_rows, f.batch.target_rows, d_x);
}

template <typename Body>
void Head::for_logits(Frame& f, const ParameterViews& p, View x, const Body& body) const {
  const MeasuredScope outer_scope(f.stack);
  const int64_t M = x.shape[0], rows = chunk_rows(f, M);
  for (int64_t begin = 0; begin < M; begin += rows) {
    const int64_t end = std::min(begin + rows, M);
    const StackScope scope(f.stack);
    const View chunk_logits = f.push(end - begin, vocab_size_);
    logits(f, p, x.rows(begin, end), chunk_logits);
    body(chunk_logits, begin, end);
  }
}

void Head::argmax(Frame& f, const ParameterViews& p, View x, View ids) const {
  for_logits(f, p, x,
             [&](View of_chunk, int64_t begin, int64_t end) { f.ops->argmax_rows(of_chunk, ids.rows(begin, end)); });
}

void Head::sample(Frame& f, const ParameterViews& p, View x, View draws, const Sampling& sampling, View ids) const {
  for_logits(f, p, x, [&](View of_chunk, int64_t begin, int64_t end) {
    f.ops->sample_rows(of_chunk, draws.rows(begin, end), sampling, ids.rows(begin, end));
  });
}

void Head::logits(Frame& f, const ParameterViews& p, View x, View logits) const {
  const StackScope scope(f.stack);
  View z = x;
  if (norm_) {
    z = f.push(x.shape[0], hidden_size_);
    norm_->forward(f, p, x, z, {});
  }
  linear_.forward(f, p, z, logits);
}

}  // namespace tessera
