#include "tessera/engine/engine.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/random.h"

namespace tessera {

// A token's row id is its sequence's number in the step times this, plus its position.
static constexpr int64_t kRowIdsPerSequence = int64_t{1} << 24;

Engine::Engine(Device& device, ModelConfig config, EngineOptions options)
    : device_(device), options_(options), ops_(make_kernels(device)), model_(std::move(config), device) {
  for (int64_t u = 0; u < model_.num_units(); ++u) {
    const int64_t bytes = model_.unit(u).table().num_elems() * static_cast<int64_t>(size_of(options_.dtype));
    units_.push_back({device_.allocate(bytes, Category::parameters), {}, {}, {}});
  }
  scalars_ = device_.allocate(2 * sizeof(double), Category::workspace);
}

ParameterViews Engine::views_of(const Buffer& buffer, int64_t unit) const {
  return {&model_.unit(unit).table(), flat(buffer, unit)};
}

View Engine::flat(const Buffer& buffer, int64_t unit) const {
  return buffer.view({model_.unit(unit).table().num_elems()}, options_.dtype);
}

void Engine::initialize_parameters(uint64_t seed) {
  for (int64_t u = 0; u < model_.num_units(); ++u) {
    const ParameterViews p = parameters(u);
    ops_->fill(p.flat, 0);
    const auto& specs = p.table->specs();
    for (size_t i = 0; i < specs.size(); ++i) {
      const Initializer& init = specs[i].init;
      switch (init.kind) {
        case Initializer::Kind::zero:
          break;
        case Initializer::Kind::one:
          ops_->fill(p[i], 1);
          break;
        case Initializer::Kind::normal:
          ops_->fill_normal(p[i], 0, init.scale, seed, init.stream, 0);
          break;
        case Initializer::Kind::uniform:
          ops_->fill_uniform(p[i], -init.scale, init.scale, seed, init.stream, 0);
          break;
      }
    }
  }
}

void Engine::prepare(const WorkBounds& work) {
  prepare_with_stack(work, activation_bytes(model_.config(), options_, work));
}

void Engine::prepare_with_stack(const WorkBounds& work, int64_t stack_bytes) {
  work_ = work;
  if (work.training.num_tokens > 0) {
    for (int64_t u = 0; u < model_.num_units(); ++u) {
      UnitStorage& unit = units_[static_cast<size_t>(u)];
      const int64_t bytes = unit.parameters.bytes();
      unit.gradients = device_.allocate(bytes, Category::gradients);
      unit.m = device_.allocate(bytes, Category::optimizer);
      unit.v = device_.allocate(bytes, Category::optimizer);
    }
  }
  stack_ = std::make_unique<Stack>(device_, stack_bytes);
  int64_t batch_bytes = 0;  // ids, row ids, starts, target rows and targets, each at its own alignment
  for (const BatchBounds& b : {work.training, work.evaluation, work.generation}) {
    const int64_t bytes = 12 * b.num_tokens + 4 * (b.num_sequences + 1) + 8 * b.num_targets;
    batch_bytes = std::max(batch_bytes, bytes + 6 * Device::kAlignment);
  }
  batch_buffer_ = device_.allocate(batch_bytes, Category::batch);
}

int64_t Engine::activation_bytes(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work) {
  const auto counting = make_counting_device(1);
  Engine engine(*counting, config, options);
  engine.prepare_with_stack(work, int64_t{1} << 60);
  engine.rehearse(work);
  return engine.stack_->peak_bytes();
}

void Engine::rehearse(const WorkBounds& work) {
  const auto imagined = [](const BatchBounds& bounds) {
    PackedBatch batch;
    batch.ids.resize(static_cast<size_t>(bounds.num_tokens));
    batch.labels.assign(batch.ids.size(), -100);
    std::fill_n(batch.labels.begin(), bounds.num_targets, 0);
    batch.starts.assign(static_cast<size_t>(bounds.num_sequences + 1), static_cast<int32_t>(bounds.num_tokens));
    batch.starts[0] = 0;
    batch.num_targets = static_cast<int32_t>(bounds.num_targets);
    return batch;
  };
  TESSERA_ASSERT(device_.kind() == DeviceKind::counting);
  if (work.training.num_tokens > 0) {
    device_.ledger().enter(Phase::step);
    const PackedBatch batch = imagined(work.training);
    train_step({&batch, 1}, 0);
  }
  if (work.evaluation.num_tokens > 0) {
    device_.ledger().enter(Phase::evaluation);
    evaluate(imagined(work.evaluation));
  }
  if (work.generation.num_tokens > 0) {
    device_.ledger().enter(Phase::evaluation);
    // As long a prompt as there is room for, and the others of one token: B prompts of N tokens together.
    std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(work.generation.num_sequences), {0});
    prompts[0].resize(static_cast<size_t>(work.generation.num_tokens - work.generation.num_sequences + 1));
    // The cache has room for all new tokens, and every turn after the first takes the same.
    generate(prompts, std::min<int64_t>(work.max_new_tokens, 2), -1);
  }
}

Frame Engine::frame(const Batch& batch, bool training) {
  const uint64_t step = static_cast<uint64_t>(num_updates_);
  const auto words = philox(options_.seed, step, 0);
  return {*ops_, *stack_, batch, options_.dtype, training, uint64_t{words[0]} << 32 | words[1], nullptr};
}

Batch Engine::upload(const PackedBatch& packed, uint64_t first_sequence) {
  Batch batch;
  batch.num_tokens = static_cast<int64_t>(packed.ids.size());
  batch.num_sequences = static_cast<int64_t>(packed.starts.size()) - 1;
  std::vector<int32_t> target_rows, targets;
  for (size_t i = 0; i < packed.labels.size(); ++i) {
    if (packed.labels[i] < 0) continue;
    target_rows.push_back(static_cast<int32_t>(i));
    targets.push_back(packed.labels[i]);
  }
  batch.num_targets = static_cast<int64_t>(targets.size());
  TESSERA_ASSERT(batch.num_targets == packed.num_targets);
  std::vector<int64_t> row_ids(packed.ids.size());
  for (size_t b = 0; b + 1 < packed.starts.size(); ++b) {
    for (int32_t i = packed.starts[b]; i < packed.starts[b + 1]; ++i) {
      row_ids[static_cast<size_t>(i)] =
          static_cast<int64_t>(first_sequence + b) * kRowIdsPerSequence + (i - packed.starts[b]);
    }
  }
  int64_t used = 0;
  const auto place = [&]<typename T>(const std::vector<T>& values) {
    const View view{batch_buffer_.data() + used, dtype_of<T>(), {static_cast<int64_t>(values.size())}};
    used += (view.bytes() + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
    TESSERA_ASSERT(used <= batch_buffer_.bytes());
    device_.copy_from_host(values.data(), view);
    return view;
  };
  batch.ids = place(packed.ids);
  batch.starts = place(packed.starts);
  batch.target_rows = place(target_rows);
  batch.targets = place(targets);
  batch.row_ids = place(row_ids);
  return batch;
}

double Engine::read_f64(View scalar) {
  double value = 0;
  device_.copy_to_host(scalar, &value);
  return value;
}

// Embeds the frame's tokens and runs the blocks with two activations in turn; nothing is kept for backward.
View Engine::run_blocks(Frame& f) {
  const int64_t N = f.batch.num_tokens, C = model_.config().hidden_size;
  View x = f.push(N, C), y = f.push(N, C);
  model_.root().embed_forward(f, parameters(0), x, nullptr);
  for (int64_t i = 0; i < model_.num_blocks(); ++i) {
    model_.block(i).forward(f, parameters(1 + i), x, y, nullptr);
    std::swap(x, y);
  }
  return x;
}

LossSum Engine::evaluate(const PackedBatch& packed) {
  if (packed.num_targets == 0) return {};
  const StackScope scope(*stack_);
  const Batch batch = upload(packed, 0);
  Frame f = frame(batch, false);
  const View loss = scalars_.view({1}, DType::f64);
  ops_->fill(loss, 0);
  model_.root().head_loss(f, parameters(0), run_blocks(f), loss);
  return {read_f64(loss), batch.num_targets};
}

void Engine::logits(const PackedBatch& packed, void* host) {
  const StackScope scope(*stack_);
  const Batch batch = upload(packed, 0);
  Frame f = frame(batch, false);
  const View x = run_blocks(f);
  const int64_t N = batch.num_tokens, V = model_.config().vocab_size;
  const Buffer all = device_.allocate(N * V * static_cast<int64_t>(size_of(options_.dtype)), Category::activations);
  const View view = all.view({N, V}, options_.dtype);
  model_.root().head_logits(f, parameters(0), x, view);
  device_.copy_to_host(view, host);
}

}  // namespace tessera
