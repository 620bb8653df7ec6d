// One training step, phase by phase. A micro-batch has N tokens; the model has C channels and L blocks.
//
//   for each micro-batch:  embed → blocks → head and loss, with their backward → blocks backward → embedding backward
//                          each unit is gathered before its use, and its gradients are reduced after its backward
//   gradient norm → clipping → AdamW, unit by unit in forward order
//
// The five streams of a rank during a step with one micro-batch. The strategy is full_shard, with parameters, gradients
// and optimizer states in host memory. Time runs to the right. Unit 0 is the root with a tied head. Units 1 to 3 are
// blocks. At most two blocks are gathered at the same time. An untied head would be unit 4: gathered after g3, computed
// after F3 and reduced before r3.
//
//            | forward             | backward                            | norm | update            | next forward
//   upload   | b  p0 p1 p2 p3      |             p1                      |      |                   | b  p0 p1 …
//   comm     |     g0 g1 g2 g3     |         r3  g1 r2     r1   r0       |      |                   |     g0 g1 …
//   compute  |        F0 F1 F2 F3  | H  B3   B2  q3 B1     E   q2 q1 q0  | n    |                   |        F0 …
//   copy     |                     |             s3     s2    s1   s0    |      |                   |
//   host     | (m2 m1)             |                                     |      | a0 a1 a2 a3       | m2 m1
//
//   b batch to the device   p this rank's part of a unit to the device   g gather   r reduce
//   F forward   H head and loss   B backward   E the embedding's backward
//   q squares of the reduced gradients   n norm and loss over all ranks; the calling thread waits for n
//   s reduced gradients to the host   a AdamW   m late moments (late_moments.h); in brackets: m of the previous step
//
// Events, "work → work that waits for it":
//   b → F   p → g   g → F, B   B, E → r   r → q, s   q → n   n, s → a   a → p of the next step
//   F, B → b, p      the batch or a gathered unit is overwritten after its last reader
//   s → B            a unit's gradient buffer is filled again after its gradients have left
//   a, m → s         AdamW has read this step's gradients in host memory before the next step's replace them
//
// Without offloading, the streams copy and host have no work: compute adds the reduced gradients to the sums and runs
// AdamW, and g waits for AdamW. If parameters stay on the device, there is no p: after each a, copy brings the
// new parameters to the device, and g waits for this copy. If arrays are in files, AdamW works on one piece of an array
// at a time: copy reads the piece before a and writes it after a. With several micro-batches, host adds the gradients
// of each s to sums in host memory, and computes the norm from these sums. If the device updates states in host memory
// (ShardPlan::streams_states()), three more streams bring pieces of the states, run AdamW on them, and send them back.
#include <cmath>
#include <limits>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera {

StepResult Engine::train_step(std::span<const PackedBatch> window, double learning_rate, double loss_scale) {
  StepResult result = count(window);
  if (result.num_targets == 0 && !counting()) {  // all ranks agree, so no rank computes anything
    result.gradient_norm = std::numeric_limits<double>::quiet_NaN();
    result.skipped = true;
    return result;
  }
  accumulate(window, result, loss_scale);

  // Phase 4: clip by the global norm. AdamW multiplies each gradient by the clipping factor when it reads the gradient,
  // which saves a separate pass. Before the update, one exchange sums the squares and the loss over all ranks. All
  // ranks therefore agree on whether to skip the update.
  begin_part(StepPart::update);
  const double squares = optimizer_->sum_of_squares();
  const double local_loss = read_f64(loss_.view({1}, DType::f64));  // final, because sum_of_squares() has waited
  const auto sums = context_.ranks.world->sum({squares, local_loss}, "the gradient's norm and the loss");
  result.gradient_norm = std::sqrt(sums[0]) / loss_scale;
  result.loss_sum = sums[1];
  result.skipped = !may_update(result.loss(), result.gradient_norm, options_.max_grad_norm);

  // Phase 5: AdamW, in forward order.
  if (!result.skipped) {
    ++num_updates_;
    const double scale = clip_factor(result.gradient_norm, options_.max_grad_norm) / loss_scale;
    optimizer_->update(options_.adamw, options_.seed, num_updates_, learning_rate, scale);
  }
  return result;
}

// A part of the step begins on the compute stream. On a GPU, parts are not measured, because host code of the compute
// stream waits for the GPU.
void Engine::begin_part(StepPart part) {
  if (context_.device.kind() == DeviceKind::cuda) return;
  in_compute_order([this, part] {
    parts_.enter(part, context_.streams.compute->clock());
    if (watch_.on_part) watch_.on_part(part);
  });
}

void Engine::in_compute_order(std::function<void()> work) {
  // A counting device without a timeline drops the work of its streams.
  if (counting() && !timeline_of(context_.device)) return work();
  context_.streams.compute->run(std::move(work));
}

// Phase 1: count the targets, tokens and sequences of the step over all ranks.
StepResult Engine::count(std::span<const PackedBatch> window) {
  TESSERA_ASSERT(!window.empty() && std::ssize(window) <= work_.micro_batches);
  double local_targets = 0, local_tokens = 0, local_sequences = 0;
  for (const PackedBatch& batch : window) {
    local_targets += batch.num_targets;
    local_tokens += static_cast<double>(batch.ids.size());
    local_sequences += static_cast<double>(batch.starts.size()) - 1;
  }
  const auto totals = context_.ranks.world->sum({local_targets, local_tokens, local_sequences}, "a step's counts");
  StepResult result;
  result.num_targets = static_cast<int64_t>(totals[0]);
  result.num_tokens = static_cast<int64_t>(totals[1]);
  result.num_sequences = static_cast<int64_t>(totals[2]);
  return result;
}

void Engine::accumulate(std::span<const PackedBatch> window, const StepResult& counts, double loss_scale) {
  // The sums of gradients and losses start at zero.
  gradients_->begin_step();
  const View loss = loss_.view({1}, DType::f64);
  ops_->fill(loss, 0);

  // Phases 2 and 3: forward and backward of each micro-batch. Backward multiplies the gradients by `scale`. The sum of
  // the gradients over all micro-batches and ranks is then loss_scale times the gradient of the step's mean loss.
  const double scale = counts.num_targets ? loss_scale / static_cast<double>(counts.num_targets) : 0;
  for (const PackedBatch& batch : window) {
    gradients_->begin_micro_batch(&batch == &window.back());
    forward_backward(batch, scale);
    gradients_->end_micro_batch();
  }
  first_step_ = false;
}

void Engine::forward_backward(const PackedBatch& packed, double scale) {
  const StackScope scope(*stack_);
  const Batch batch = upload(packed, true);
  Frame f = frame(batch, true);
  model_.begin(f);
  const int64_t N = batch.num_tokens, C = model_.config().hidden_size, L = model_.num_blocks();
  const ShardOptions& sharding = context_.plan.options();
  begin_part(StepPart::forward);
  const bool computes = N > 0;  // a rank without samples still joins the collectives of this micro-batch

  // Makes the key of a CUDA graph (block_graphs.h). All addresses on the stack that are not in the key follow from the
  // sizes and from the height of the stack. What the block recomputes follows from the unit.
  enum class BlockWork : int64_t { forward, backward, first_backward };
  const auto key = [&](BlockWork work, int64_t unit, const ParameterViews& p, const ParameterViews& g, View from,
                       View to) {
    const auto at = [](const View& view) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(view.data)); };
    const int64_t number = static_cast<int64_t>(work), B = batch.num_sequences, height = stack_->mark();
    const int64_t trainable = at(p.trainable()), frozen = at(p.sections[Section::frozen]);
    const int64_t quantized = at(p.sections[Section::quantized]);
    return BlockGraphs::Key{
        number, unit,     N,     B, at(batch.starts), trainable, frozen, quantized, at(g.trainable()),
        height, at(from), at(to)};
  };

  // Phase 2: forward. Keep each block's input, and the values for its backward that backward does not compute again.
  std::vector<View> x(static_cast<size_t>(L + 1));  // [N, C] inputs of the blocks; x[L] is the input of the head
  std::vector<SavedViews> saved(static_cast<size_t>(L));
  SavedViews saved_embedding;
  // Units before the first trained unit have no backward, so they keep nothing. The blocks among these units write
  // their outputs alternately to two buffers.
  const int64_t first_trained = model_.first_trained();
  const auto trains_from = [&](int64_t unit) { return unit >= first_trained; };
  const RecomputedBlocks recomputed = recomputed_blocks();
  // Backward frees the values of each block after their last use. The gradients of a block's output (d_y) and of its
  // input (d_x) are needed longer, so they are below all these values on the stack.
  View d_y, d_x;
  const auto push_gradients = [&] { d_y = f.push(N, C), d_x = f.push(N, C); };
  std::vector<int64_t> height(static_cast<size_t>(L));  // of the stack when a block's backward starts
  x[0] = f.push(N, C);
  parameters_.compute_in_float8(options_.float8);
  const ParameterViews root = parameters_.acquire(0);
  if (computes) model_.root().embed_forward(f, root, x[0], trains_from(0) ? &saved_embedding : nullptr);
  parameters_.release(0);
  for (int64_t i = 0; i < L; ++i) {
    const auto n = static_cast<size_t>(i);
    const bool keeps_values = trains_from(1 + i) && !recomputed.whole(i);
    f.recomputed = {.mlp = recomputed.mlp(i), .attention = recomputed.attention(i)};
    if (i == recomputed.first) push_gradients();
    height[n] = stack_->mark();
    x[n + 1] = trains_from(i) || i == 0 ? f.push(N, C) : x[n - 1];
    const ParameterViews p = parameters_.acquire(1 + i);
    if (sharding.forward_prefetch) parameters_.prefetch(2 + i);
    if (computes) {
      block_graphs_.run(key(BlockWork::forward, 1 + i, p, {}, x[n], x[n + 1]), f, [&](Frame& frame) {
        model_.block(i).forward(frame, p, x[n], x[n + 1], keeps_values ? &saved[n] : nullptr);
      });
    }
    parameters_.release(1 + i);
    if (keeps_values) height[n] = stack_->mark();
  }
  f.recomputed = {};  // if backward runs a block's forward again, this forward keeps all values
  if (recomputed.first == L) push_gradients();  // no block has a backward

  // Phase 3: loss and backward, from the head to the embedding.
  begin_part(StepPart::backward);
  const int64_t head_unit = model_.head_unit();
  const ParameterViews head = parameters_.acquire(head_unit);
  UnitGradients::Acquired outer = gradients_->acquire(head_unit, computes);
  f.fresh_gradients = outer.fresh;
  if (computes) {
    model_.head().loss_backward(f, head, outer.views, x.back(), scale, loss_.view({1}, DType::f64), d_y);
  }
  parameters_.release(head_unit);
  if (head_unit != 0) gradients_->reduce(head_unit);
  for (int64_t i = L - 1; i >= 0 && trains_from(1 + i); --i) {
    const auto n = static_cast<size_t>(i);
    const ParameterViews p = parameters_.acquire(1 + i);
    if (sharding.backward_prefetch == BackwardPrefetch::pre && i > 0 && trains_from(i)) parameters_.prefetch(i);
    const auto [g, is_fresh] = gradients_->acquire(1 + i, computes);
    f.fresh_gradients = is_fresh;
    stack_->pop_to(height[n]);
    if (computes) {
      block_graphs_.run(key(is_fresh ? BlockWork::first_backward : BlockWork::backward, 1 + i, p, g, d_y, d_x), f,
                        [&, g = g](Frame& frame) {  // clang 14 cannot capture a structured binding
                          const StackScope values(*stack_);
                          // A block that kept only its input runs forward again for its saved values. It needs no
                          // output.
                          if (recomputed.whole(i)) model_.block(i).forward(frame, p, x[n], {}, &saved[n]);
                          model_.block(i).backward(frame, p, g, x[n], saved[n], d_y, d_x);
                        });
    }
    parameters_.release(1 + i);
    if (sharding.backward_prefetch == BackwardPrefetch::post && i > 0 && trains_from(i)) parameters_.prefetch(i);
    gradients_->reduce(1 + i);
    std::swap(d_x, d_y);
  }
  if (head_unit != 0) outer = gradients_->acquire(0, computes);
  f.fresh_gradients = outer.fresh;
  if (trains_from(0)) {
    parameters_.acquire(0);  // the views `root` are still valid, because the root stays in its slot
    if (computes) model_.root().embed_backward(f, root, outer.views, saved_embedding, d_y);
    parameters_.release(0);
  }
  gradients_->reduce(0);
}

}  // namespace tessera
