// One training step, its phases in order. N tokens, C channels, L blocks.
//
//   zero the gradients
//   for each micro-batch:  embed → blocks → head and loss → blocks backward → embedding backward
//   norm of the gradient → clipping → AdamW, unit by unit in forward order
#include <cmath>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera {

StepResult Engine::train_step(std::span<const PackedBatch> window, double learning_rate) {
  StepResult result = accumulate_gradients(window);

  // Phase 4: clip by the global norm. The factor rides on the gradient as AdamW reads it: no pass of its own.
  result.gradient_norm = gradient_norm();
  const double scale = clip_factor(result.gradient_norm, options_.max_grad_norm);

  // Phase 5: AdamW, in forward order.
  ++num_updates_;
  for (int64_t u = 0; u < model_.num_units(); ++u) {
    const AdamWStep step =
        adamw_step(options_.adamw, num_updates_, learning_rate, scale, model_.unit(u).table().num_decayed());
    ops_->adamw(parameters(u).flat, gradients(u).flat, moment1(u), moment2(u), step, {});
  }
  return result;
}

StepResult Engine::accumulate_gradients(std::span<const PackedBatch> window) {
  StepResult result;
  for (const PackedBatch& batch : window) {
    result.num_targets += batch.num_targets;
    result.num_tokens += static_cast<int64_t>(batch.ids.size());
    result.num_sequences += static_cast<int64_t>(batch.starts.size()) - 1;
  }

  // Phase 1: gradients begin at zero.
  zero_gradients();
  ops_->fill(scalars_.view({2}, DType::f64), 0);

  // Phases 2 and 3: every micro-batch weighs by its targets, so that the window's loss is the mean over all of them.
  const double scale = result.num_targets ? 1.0 / static_cast<double>(result.num_targets) : 0;
  uint64_t first_sequence = 0;
  for (const PackedBatch& batch : window) {
    forward_backward(upload(batch, first_sequence), scale);
    first_sequence += batch.starts.size() - 1;
  }
  result.loss_sum = read_f64(scalars_.view({1}, DType::f64));
  return result;
}

void Engine::forward_backward(const Batch& batch, double scale) {
  if (batch.num_tokens == 0) return;
  const StackScope scope(*stack_);
  Frame f = frame(batch, true);
  const int64_t N = batch.num_tokens, C = model_.config().hidden_size, L = model_.num_blocks();

  // Phase 2: forward. Each block's input stays, and what its backward needs unless blocks are checkpointed.
  std::vector<View> x(static_cast<size_t>(L + 1));  // [N, C] inputs of the blocks; x[L] goes to the head
  std::vector<SavedViews> saved(static_cast<size_t>(L));
  SavedViews saved_embedding;
  x[0] = f.push(N, C);
  model_.root().embed_forward(f, parameters(0), x[0], &saved_embedding);
  for (int64_t i = 0; i < L; ++i) {
    const auto n = static_cast<size_t>(i);
    x[n + 1] = f.push(N, C);
    model_.block(i).forward(f, parameters(1 + i), x[n], x[n + 1], options_.checkpoint_blocks ? nullptr : &saved[n]);
  }

  // Phase 3: loss and backward, the mirror image.
  View d_y = f.push(N, C), d_x = f.push(N, C);
  model_.root().head_loss_backward(f, parameters(0), gradients(0), x.back(), scale, scalars_.view({1}, DType::f64),
                                   d_y);
  for (int64_t i = L - 1; i >= 0; --i) {
    const auto n = static_cast<size_t>(i);
    const StackScope block_scope(*stack_);
    if (options_.checkpoint_blocks) {
      model_.block(i).forward(f, parameters(1 + i), x[n], {},
                              &saved[n]);  // its output has been used: only for backward
    }
    model_.block(i).backward(f, parameters(1 + i), gradients(1 + i), x[n], saved[n], d_y, d_x);
    std::swap(d_x, d_y);
  }
  model_.root().embed_backward(f, parameters(0), gradients(0), saved_embedding, d_y);
}

void Engine::zero_gradients() {
  for (int64_t u = 0; u < model_.num_units(); ++u) ops_->fill(gradients(u).flat, 0);
}

double Engine::gradient_norm() {
  const View sum = scalars_.view({2}, DType::f64).rows(1, 2);
  for (int64_t u = 0; u < model_.num_units(); ++u) ops_->add_sum_of_squares(gradients(u).flat, sum);
  return std::sqrt(read_f64(sum));
}

}  // namespace tessera
