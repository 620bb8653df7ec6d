#include "tessera/engine/plan.h"

#include <limits>

#include "tessera/ops/flops.h"

namespace tessera {

std::function<int64_t(int64_t length)> cost_of_samples(const Model& model) {
  const int64_t token_flops = 3 * linear_flops(1, model.block(0).table().num_parameters(), 1);
  return [token_flops, config = model.config()](int64_t length) {
    int64_t cost = config.num_layers * length;
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      cost +=
          attention_training_flops(length, config.attention_channels(), config.window_of(layer), false) / token_flops;
    }
    return cost;
  };
}

Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work, const PlannedRank& rank,
              const HeldBeside& beside) {
  const auto device = make_counting_device({rank.device, rank.num_threads}),
             host = make_counting_device({DeviceKind::cpu, rank.num_threads});
  const auto world = make_counting_communicator(*device, rank.rank, rank.world_size);
  const auto enter = [&](Phase phase) {
    device->ledger().enter(phase);
    host->ledger().enter(phase);
  };
  Engine engine({*device, *host, *world, rank.ranks_per_node}, config, options);
  engine.prepare(work);
  engine.states().load_parameters({}, options.sharding.sync_module_states);
  enter(Phase::resume);
  engine.states().load({});
  std::shared_ptr<void> held;
  if (beside) {
    enter(Phase::save);
    held = beside(engine, *world);
  }
  WorkBounds training;
  training.training = work.training;
  struct Sent {
    int64_t all, within_nodes;
  };
  const auto sent_by = [&](int64_t num_micro_batches) -> Sent {
    const Sent before{engine.bytes_sent(), engine.bytes_sent_within_nodes()};
    if (training.training.num_tokens > 0) engine.rehearse(training, num_micro_batches);
    return {engine.bytes_sent() - before.all, engine.bytes_sent_within_nodes() - before.within_nodes};
  };
  Plan plan;
  plan.num_parameters = engine.model().num_parameters();
  plan.num_trainable_parameters = engine.model().num_trainable_parameters();
  // The plan does not use the bytes of a run's first step: with zero1 and zero2, this step gathers no parameters, and
  // therefore sends less than later steps.
  sent_by(1);
  const int64_t flops_before = engine.ops().flops();
  const Sent one = sent_by(1);
  plan.micro_batch_flops = engine.ops().flops() - flops_before;
  // Two micro-batches are enough: a step with more of them needs no more memory, and each later micro-batch sends as
  // many bytes as the second.
  const Sent two = work.micro_batches > 1 ? sent_by(2) : one;
  const auto of_step = [&](int64_t first, int64_t next) {
    int64_t more = 0, all = 0;
    const bool too_many =
        __builtin_mul_overflow(work.micro_batches - 1, next, &more) || __builtin_add_overflow(first, more, &all);
    return too_many ? std::numeric_limits<int64_t>::max() : all;
  };
  plan.step_bytes_sent = of_step(one.all, two.all - one.all);
  plan.step_bytes_sent_within_nodes = of_step(one.within_nodes, two.within_nodes - one.within_nodes);
  if (const BatchBounds& batch = work.training; batch.num_sequences > 0) {
    const int64_t length = batch.mean_length > 0 ? batch.mean_length : batch.num_tokens / batch.num_sequences,
                  num_sequences =
                      batch.mean_length > 0 ? std::max<int64_t>(1, batch.num_tokens / length) : batch.num_sequences;
    const int64_t first_trained = engine.model().first_trained();  // blocks before this unit have no backward pass
    const RecomputedBlocks recomputed = engine.recomputed_blocks();
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      const int64_t channels = config.attention_channels(), window = config.window_of(layer);
      plan.micro_batch_flops +=
          num_sequences * (1 + layer < first_trained
                               ? attention_forward_flops(length, channels, window)
                               : attention_training_flops(length, channels, window,
                                                          recomputed.whole(layer) || recomputed.attention(layer)));
    }
  }
  const auto head_bytes_of = [&](Phase phase) -> int64_t& { return plan.head_bytes[static_cast<size_t>(phase)]; };
  head_bytes_of(Phase::step) = engine.take_head_peak_bytes();
  WorkBounds others = work;
  others.training = {};
  engine.rehearse(others);
  head_bytes_of(Phase::evaluation) = engine.take_head_peak_bytes();
  enter(Phase::save);
  engine.states().save({});
  plan.device = device->ledger();
  plan.host = host->ledger();
  plan.file_bytes = engine.file_bytes();
  return plan;
}

}  // namespace tessera
