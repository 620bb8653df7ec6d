#include "tessera/engine/plan.h"

#include "tessera/ops/flops.h"

namespace tessera {

Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work) {
  const auto device = make_counting_device(1);
  Engine engine(*device, config, options);
  engine.prepare(work);
  device->ledger().enter(Phase::resume);  // a resumed run reads what a checkpoint has into buffers it holds already
  WorkBounds training;
  training.training = work.training;
  engine.rehearse(training);
  Plan plan;
  plan.num_parameters = engine.model().num_parameters();
  plan.step_flops = engine.ops().flops();
  if (const BatchBounds& batch = work.training; batch.num_sequences > 0) {
    const int64_t length = batch.num_tokens / batch.num_sequences;
    const int64_t forward =
        batch.num_sequences * config.num_layers * attention_forward_flops(length, config.hidden_size);
    plan.step_flops += forward * (options.checkpoint_blocks ? 9 : 7) / 2;  // backward is 2.5 × forward
  }
  WorkBounds others = work;
  others.training = {};
  engine.rehearse(others);
  device->ledger().enter(Phase::save);
  plan.ledger = device->ledger();
  return plan;
}

}  // namespace tessera
