// What only tests ask of an engine.
#pragma once

#include "tessera/engine/engine.h"

namespace tessera {

struct EngineProbe {
  Engine& engine;

  // The parameters and gradients of a unit, for one rank and without offloading.
  ParameterViews parameters(int64_t unit) const {
    const UnitParameters& all = engine.parameters_;
    return {&engine.model_.unit(unit).table(),
            {all.kept(Section::trainable).view(unit), all.kept(Section::frozen).view(unit)}};
  }
  ParameterViews gradients(int64_t unit) const { return engine.gradients_->whole(unit); }

  // Accumulates the gradients of loss_scale times the mean loss, without clipping and update.
  StepResult accumulate_gradients(std::span<const PackedBatch> window, double loss_scale = 1) const {
    StepResult result = engine.count(window);
    engine.accumulate(window, result, loss_scale);
    const View loss = engine.loss_.view({1}, DType::f64);
    result.loss_sum = engine.context_.ranks.world->sum({engine.read_f64(loss)}, "a step's loss")[0];
    return result;
  }

  // Writes the logits [N, V] of the batch's N tokens (V: vocabulary) to `host`, in options().dtype, from products as in
  // training. For small inputs only.
  void logits(const PackedBatch& packed, void* host) const {
    const StackScope scope(*engine.stack_);
    const Batch batch = engine.upload(packed, false);
    Frame f = engine.frame(batch, false);
    f.float8 = engine.options_.float8;
    const View x = engine.run_blocks(f, batch.num_tokens);
    const int64_t N = batch.num_tokens, V = engine.model_.config().vocab_size, head = engine.model_.head_unit();
    const Buffer all = engine.device().allocate(bytes_of(N * V, f.dtype), Category::activations);
    const View view = all.view({N, V}, f.dtype);
    engine.model_.head().logits(f, engine.parameters_.acquire(head), x, view);
    engine.parameters_.release(head);
    engine.device().copy_to_host(view, host);
    engine.check_gathering();
  }

  // The number of launches of CUDA graphs so far. Each launch runs the forward or the backward of one block.
  int64_t num_graph_launches() const { return engine.block_graphs_.num_launches(); }
};

inline EngineProbe probe(Engine& engine) {
  return {engine};
}

}  // namespace tessera
