#include "tessera/engine/plan.h"

#include "tessera/ops/flops.h"

namespace tessera {

Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work,
              const PlannedRank& rank) {
  const auto device = make_counting_device(rank.num_threads), host = make_counting_device(rank.num_threads);
  const auto world = make_counting_communicator(*device, rank.rank, rank.world_size);
  const auto enter = [&](Phase phase) {
    device->ledger().enter(phase);
    host->ledger().enter(phase);
  };
  Engine engine({*device, *host, *world, rank.ranks_per_node}, config, options);
  engine.prepare(work);
  engine.load_parameters({});
  enter(Phase::resume);
  engine.load_states({});
  WorkBounds training;
  training.training = work.training;
  const int64_t flops_before = engine.ops().flops(), sent_before = engine.bytes_sent();
  engine.rehearse(training, rank.grad_accum);
  Plan plan;
  plan.num_parameters = engine.model().num_parameters();
  plan.step_bytes_sent = engine.bytes_sent() - sent_before;
  plan.micro_batch_flops = (engine.ops().flops() - flops_before) / rank.grad_accum;
  if (const BatchBounds& batch = work.training; batch.num_sequences > 0) {
    const int64_t length = batch.num_tokens / batch.num_sequences;
    const int64_t forward =
        batch.num_sequences * config.num_layers * attention_forward_flops(length, config.hidden_size);
    plan.micro_batch_flops += forward * (options.checkpoint_blocks ? 9 : 7) / 2;  // backward is 2.5 × forward
  }
  WorkBounds others = work;
  others.training = {};
  engine.rehearse(others);
  enter(Phase::save);
  engine.save_states({});
  plan.device = device->ledger();
  plan.host = host->ledger();
  return plan;
}

}  // namespace tessera
