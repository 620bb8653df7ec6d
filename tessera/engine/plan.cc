#include "tessera/engine/plan.h"

#include "tessera/ops/flops.h"

namespace tessera {

Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work, const PlannedRank& rank,
              const std::function<void(Engine&, Communicator& world)>& at_save) {
  const auto device = make_counting_device({rank.device, rank.num_threads}),
             host = make_counting_device({DeviceKind::cpu, rank.num_threads});
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
  // Two micro-batches are as many as it takes to see all that a step holds; those beyond send what the second sent. A
  // run's first step finds all parameters in place and sends less than the others: it is not what is counted.
  const auto step_bytes_sent = [&](int64_t num_micro_batches) {
    const int64_t before = engine.bytes_sent();
    engine.rehearse(training, num_micro_batches);
    return engine.bytes_sent() - before;
  };
  Plan plan;
  plan.num_parameters = engine.model().num_parameters();
  step_bytes_sent(1);
  const int64_t flops_before = engine.ops().flops();
  const int64_t sent_by_one = step_bytes_sent(1);
  plan.micro_batch_flops = engine.ops().flops() - flops_before;
  plan.step_bytes_sent =
      rank.grad_accum == 1 ? sent_by_one : sent_by_one + (rank.grad_accum - 1) * (step_bytes_sent(2) - sent_by_one);
  if (const BatchBounds& batch = work.training; batch.num_sequences > 0) {
    const int64_t length = batch.num_tokens / batch.num_sequences;
    const int64_t forward =
        batch.num_sequences * config.num_layers * attention_forward_flops(length, config.hidden_size);
    plan.micro_batch_flops += forward * (options.checkpoint_blocks ? 9 : 7) / 2;  // backward is 2.5 × forward
  }
  const auto head_bytes_of = [&](Phase phase) -> int64_t& { return plan.head_bytes[static_cast<size_t>(phase)]; };
  head_bytes_of(Phase::step) = engine.take_head_peak_bytes();
  WorkBounds others = work;
  others.training = {};
  engine.rehearse(others);
  head_bytes_of(Phase::evaluation) = engine.take_head_peak_bytes();
  enter(Phase::save);
  engine.save_states({});
  if (at_save) at_save(engine, *world);
  engine.collect_parameters({});
  plan.device = device->ledger();
  plan.host = host->ledger();
  return plan;
}

}  // namespace tessera
