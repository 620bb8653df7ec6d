#include "tessera/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/base/counted.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

namespace {

// The row id of a token combines the number of the update, the number of the token's sequence in this update, and the
// token's position. The row id is the counter for the random numbers of the token's dropout (dropout_mask.h). Row ids
// begin at 2^40, because initial parameters use the counters below 2^40 with the same seed.
int64_t row_id(int64_t num_updates, int64_t sequence, int64_t position) {
  return (num_updates + 1) << 40 | sequence << 20 | position;
}

// A shard of quantized moments consists of complete blocks.
std::vector<PerSection<UnitShards>> cut_units(const Model& model, const ShardPlan& plan, OptimizerStates states) {
  PerSection<int64_t> alignment;
  for (const Section section : kSections) alignment[section] = ParameterTable::alignment(section);
  if (states == OptimizerStates::q8) alignment[Section::trainable] = kQuantizedValues;
  std::vector<PerSection<UnitShards>> units(static_cast<size_t>(model.num_units()));
  for (size_t u = 0; u < units.size(); ++u) {
    const ParameterTable& table = model.unit(static_cast<int64_t>(u)).table();
    for (const Section section : kSections) {
      units[u][section] = plan.cut(table.num_elems(section), alignment[section]);
    }
  }
  return units;
}

}  // namespace

EngineContext Engine::make_context(const EnginePlace& place, const Model& model, const EngineOptions& options,
                                   Kernels& ops, std::unique_ptr<Kernels>& own_host_ops) {
  const ShardPlan plan(options.sharding, place.world.size(), place.world.rank(), place.ranks_per_node,
                       offloaded_from(options.sharding, model));
  if (options.sharding.offload.any()) own_host_ops = make_kernels(place.host);
  Streams streams;
  streams.compute = &place.device.compute_stream();
  streams.comm = place.device.make_stream();
  streams.upload = place.device.make_stream();
  streams.copy = place.device.make_stream();
  if (options.sharding.offload.any()) streams.host = place.host.make_stream();
  for (int64_t u = 0; u < model.num_units(); ++u) {
    if (!plan.streams_states(u) || streams.updates) continue;
    for (auto* stream : {&streams.states_in, &streams.updates, &streams.states_out}) {
      *stream = place.device.make_stream();
    }
  }
  return {place.device,
          place.host,
          ops,
          own_host_ops                  ? own_host_ops.get()
          : place.device.host_visible() ? &ops
                                        : nullptr,
          RankGroups(place.world, plan),
          plan,
          model,
          options.dtype,
          std::move(streams),
          {options.dtype, options.dtype, DType::nf4},
          cut_units(model, plan, options.optimizer_states),
          options.optimizer_states};
}

Engine::Engine(EnginePlace place, ModelConfig config, EngineOptions options)
    : options_(std::move(options)),
      ranks_per_node_(place.ranks_per_node),
      ops_(make_kernels(place.device, options_.tf32)),
      model_(std::move(config), place.device, options_.frozen),
      context_(make_context(place, model_, options_, *ops_, own_host_ops_)),
      parameters_(context_),
      block_graphs_(
          place.device.compute_stream(), options_.cuda_graphs && place.device.kind() == DeviceKind::cuda,
          options_.cuda_graphs && kind_of_work(place.device) == DeviceKind::cuda ? timeline_of(place.device) : nullptr),
      loss_(place.device.allocate(sizeof(double), Category::workspace)) {
  TESSERA_ASSERT(options_.optimizer_states != OptimizerStates::bf16 || options_.dtype == DType::bf16);
  TESSERA_ASSERT(options_.optimizer_states != OptimizerStates::q8 || options_.dtype != DType::f64);
  if (options_.float8) {
    if (const std::string reason = ops_->refusal_of_float8(); !reason.empty()) {
      throw UsageError(option_place("matmul_precision"), reason, "Leave the setting out");
    }
    model_.check_float8();
  }
  const Recomputation& wanted = options_.recomputation;
  if (wanted.automatic) {
    throw UsageError(option_place("activation_checkpointing"), "auto needs a run that is planned",
                     "Only train and plan choose what to compute again. Write none, block or a number of blocks");
  }
  for (const auto& [part, number] :
       {std::pair{"block", wanted.blocks}, std::pair{"mlp", wanted.mlp}, std::pair{"attention", wanted.attention}}) {
    const int64_t L = model_.num_blocks();
    if (number == kAllBlocks || number <= L) continue;
    throw UsageError(option_place("activation_checkpointing"),
                     fmt::format("{}, but the model has only {}", counted(number, "block"), L),
                     fmt::format("Give at most {}, or \"{}\" for all blocks", L, part));
  }
}

// Waits for the streams' work and ends the streams before the arrays that they use are freed.
Engine::~Engine() {
  context_.streams = {};
}

int64_t Engine::bytes_sent() const {
  int64_t bytes = context_.ranks.world->bytes_sent();
  if (context_.ranks.shard != context_.ranks.world) {
    bytes += context_.ranks.shard->bytes_sent() + context_.ranks.replica->bytes_sent();
  }
  return bytes;
}

int64_t Engine::bytes_sent_within_nodes() const {
  if (context_.plan.world_size() <= ranks_per_node_) return bytes_sent();
  const bool grouped =
      context_.ranks.shard != context_.ranks.world && ranks_per_node_ % context_.plan.shard_group_size() == 0;
  return grouped ? context_.ranks.shard->bytes_sent() : 0;
}

namespace {

int64_t max_tokens_of(const ModelConfig& config) {
  return max_batch_tokens(config.num_heads / config.kv_heads());
}

}  // namespace

bool is_supported(const BatchBounds& bounds, const ModelConfig& config) {
  return bounds.num_tokens <= max_tokens_of(config) && bounds.num_sequences <= kMaxBatchSequences;
}

namespace {

void check_bounds(const WorkBounds& work, const ModelConfig& config) {
  const auto check = [&](const BatchBounds& bounds, const std::string& where) {
    if (is_supported(bounds, config)) return;
    throw UsageError(where,
                     fmt::format("a batch can have up to {} with {} in total, but the maximum is {} sequences and {} "
                                 "tokens",
                                 counted(bounds.num_sequences, "sequence"), counted(bounds.num_tokens, "token"),
                                 kMaxBatchSequences, max_tokens_of(config)),
                     "Use smaller batches, or a smaller " + option("max_length"));
  };
  check(work.training, option_place("batch_size") + " or " + option("batch_tokens"));
  check(work.evaluation, option_place("eval_batch_size"));
  check(work.generation, option_place("eval_batch_size"));
}

}  // namespace

void Engine::prepare(const WorkBounds& work) {
  check_bounds(work, model_.config());
  const Needs needs = needs_of(work);
  ops_->reserve_scratch(needs.scratch_bytes);
  prepare_with_stack(work, needs.stack_bytes);
}

void Engine::prepare_with_stack(const WorkBounds& work, int64_t stack_bytes) {
  work_ = work;
  parameters_.prepare();
  if (work.training.num_tokens > 0) {
    gradients_ = std::make_unique<UnitGradients>(context_, work.micro_batches);
    optimizer_ = std::make_unique<UnitOptimizer>(context_, parameters_, *gradients_);
  }
  stack_ = std::make_unique<Stack>(context_.device, stack_bytes);
  int64_t batch_bytes = 0;  // ids, starts, positions, row ids, target rows and targets, each aligned
  BatchBounds training = work.training;
  training.num_tokens += padding(training.num_tokens, true);
  for (const BatchBounds& b : {training, work.evaluation, work.generation}) {
    const int64_t bytes = 16 * b.num_tokens + 4 * (b.num_sequences + 2) + 8 * b.num_targets;
    batch_bytes = std::max(batch_bytes, bytes + 7 * Device::kAlignment);
  }
  for (UploadBuffer& buffer : uploads_) buffer.host = context_.host.allocate(batch_bytes, Category::batch);
  batch_ = context_.device.allocate(batch_bytes, Category::batch);
  block_graphs_.limit_to(most_cuda_graphs(context_.device.ledger().current_total()));
}

// Measures the bytes of stack and of kernel scratch that the work needs, with a rehearsal on one rank without sharding.
// Any number of ranks and any strategy need the same bytes, if backward writes gradients of the same type. The
// rehearsal therefore has the reduce_dtype of the run. If the run reduces the gradients of every micro-batch, they have
// the same type as in a step with one micro-batch, so the rehearsal is prepared for one.
Engine::Needs Engine::needs_of(const WorkBounds& work) const {
  const auto device = make_counting_device({.kind = kind_of_work(context_.device)}), host = make_counting_device();
  const auto alone = make_self_communicator();
  EngineOptions options = options_;
  options.sharding = {};
  options.sharding.reduce_dtype = options_.sharding.reduce_dtype;
  WorkBounds rehearsed = work;
  if (context_.plan.reduce_every_micro_batch()) rehearsed.micro_batches = 1;
  Engine engine({*device, *host, *alone, 1}, model_.config(), options);
  engine.prepare_with_stack(rehearsed, int64_t{1} << 60);
  engine.rehearse(rehearsed);
  return {engine.stack_->peak_bytes(), engine.ops_->scratch_bytes()};
}

PackedBatch imagined_batch(const BatchBounds& bounds) {
  PackedBatch batch;
  batch.ids.resize(static_cast<size_t>(bounds.num_tokens));
  batch.labels.assign(batch.ids.size(), -100);
  std::fill_n(batch.labels.begin(), bounds.num_targets, 0);
  batch.starts.assign(static_cast<size_t>(bounds.num_sequences + 1), static_cast<int32_t>(bounds.num_tokens));
  batch.starts[0] = 0;
  batch.num_targets = static_cast<int32_t>(bounds.num_targets);
  return batch;
}

void Engine::rehearse(const WorkBounds& work, int64_t num_micro_batches) {
  Ledger* ledgers[] = {&context_.device.ledger(), &context_.host.ledger()};
  const auto enter = [&](Phase phase) {
    for (Ledger* ledger : ledgers) ledger->enter(phase);
  };
  TESSERA_ASSERT(counting());
  rehearsing_ = true;
  if (work.training.num_tokens > 0) {
    enter(Phase::step);
    train_step(std::vector<PackedBatch>(static_cast<size_t>(num_micro_batches), imagined_batch(work.training)), 0);
  }
  if (work.evaluation.num_tokens > 0) {
    enter(Phase::evaluation);
    evaluate(imagined_batch(work.evaluation));
  }
  if (work.generation.num_tokens > 0) {
    enter(Phase::evaluation);
    // B prompts with N tokens in total: the first prompt is as long as possible, and each other prompt has one token.
    std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(work.generation.num_sequences), {0});
    prompts[0].resize(static_cast<size_t>(work.generation.num_tokens - work.generation.num_sequences + 1));
    // Two new tokens suffice: reading the prompts gives the first token, and each later token needs the same memory.
    // In any case, generate() allocates the cache for work_.max_new_tokens.
    generate(prompts, {.max_new_tokens = std::min<int64_t>(work.max_new_tokens, 2)});
  }
  rehearsing_ = false;
}

// Kernels are tuned only in the first step, and only for a batch of the largest size. If the first step has such a
// batch, more of this size probably follow. If the largest size is rare, tuning costs more than it gains.
Frame Engine::frame(const Batch& batch, bool training) {
  const int64_t most = work_.training.num_tokens + padding(work_.training.num_tokens, true);
  ops_->set_tuning(training && first_step_ && batch.num_tokens == most);
  return {.ops = ops_.get(),
          .stack = *stack_,
          .batch = batch,
          .dtype = options_.dtype,
          .training = training,
          .dropout_seed = options_.seed,
          .float8 = training && options_.float8,
          .head_chunk_bytes = options_.head_chunk_bytes,
          .large_head_chunks = kind_of_work(context_.device) == DeviceKind::cuda,
          .stands_for_smaller = rehearsing_,
          .own_loss = loss_of_rows_ ? &*loss_of_rows_ : nullptr};
}

int64_t Engine::padding(int64_t num_tokens, bool training) const {
  const bool pads = training && num_tokens > 0 && kind_of_work(context_.device) == DeviceKind::cuda;
  return pads ? padded_tokens(num_tokens) - num_tokens : 0;
}

// Lays a batch out in host memory while the device may still compute the previous batch. The upload starts after the
// device has finished the previous batch.
Batch Engine::upload(const PackedBatch& packed, bool training) {
  Batch batch;
  batch.num_tokens = static_cast<int64_t>(packed.ids.size());
  std::vector<int32_t> starts = packed.starts;
  if (const int64_t more = padding(batch.num_tokens, training)) {
    batch.num_tokens += more;
    // In simulated time, all sequences are equally long, so a sequence of padding would shorten the others.
    if (!timeline_of(context_.device)) starts.push_back(static_cast<int32_t>(batch.num_tokens));
  }
  batch.num_sequences = std::ssize(starts) - 1;
  batch.num_targets = packed.num_targets;
  const bool counts = counting();  // on the counting device, only sizes matter
  if (loss_of_rows_) loss_of_rows_->begin(packed);
  std::vector<int32_t> target_rows, targets;
  for (size_t i = 0; !counts && i < packed.labels.size(); ++i) {
    if (packed.labels[i] < 0) continue;
    target_rows.push_back(static_cast<int32_t>(i));
    targets.push_back(packed.labels[i]);
  }
  TESSERA_ASSERT(counts || std::ssize(targets) == batch.num_targets);
  std::vector<int32_t> positions(counts ? 0 : packed.ids.size());
  std::vector<int64_t> row_ids(positions.size());
  for (size_t b = 0; !counts && b + 1 < packed.starts.size(); ++b) {
    for (int32_t i = packed.starts[b]; i < packed.starts[b + 1]; ++i) {
      const int64_t sequence = packed.sequence_numbers.empty() ? static_cast<int64_t>(b) : packed.sequence_numbers[b];
      positions[static_cast<size_t>(i)] = i - packed.starts[b];
      row_ids[static_cast<size_t>(i)] = row_id(num_updates_, sequence, i - packed.starts[b]);
    }
  }
  UploadBuffer& buffer = uploads_[next_upload_];
  next_upload_ = 1 - next_upload_;
  buffer.sent.synchronize();
  int64_t used = 0;
  const auto place = [&]<typename T>(const std::vector<T>& values, int64_t count) {
    const View view{batch_.data() + used, dtype_of<T>(), {count}};
    std::byte* staged = buffer.host.data() + used;
    used += round_up(view.bytes(), Device::kAlignment);
    TESSERA_ASSERT(used <= buffer.host.bytes());
    if (counts || count == 0) return view;
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(staged));
    std::fill(reinterpret_cast<T*>(staged) + values.size(), reinterpret_cast<T*>(staged) + count, 0);  // padding
    return view;
  };
  batch.ids = place(packed.ids, batch.num_tokens);
  batch.starts = place(starts, batch.num_sequences + 1);
  batch.positions = place(positions, batch.num_tokens);
  batch.row_ids = place(row_ids, batch.num_tokens);
  batch.target_rows = place(target_rows, batch.num_targets);
  batch.targets = place(targets, batch.num_targets);
  Stream& upload = *context_.streams.upload;
  upload.wait(context_.streams.compute->record());
  upload.copy(buffer.host.view({used}, DType::u8), batch_.view({used}, DType::u8));
  buffer.sent = upload.record();
  context_.streams.compute->wait(buffer.sent);
  return batch;
}

void Engine::watch(StepWatch watch) {
  TESSERA_ASSERT(counting());
  watch_ = std::move(watch);
  stack_->watch([this](int64_t height_bytes) {
    in_compute_order([this, height_bytes] {
      if (watch_.on_stack) watch_.on_stack(height_bytes);
    });
  });
}

double Engine::read_f64(View scalar) {
  double value = 0;
  context_.device.copy_to_host(scalar, &value);
  return value;
}

// Embeds the frame's tokens and runs the blocks. Each block reads one of two buffers for activations and writes the
// other one. Keeps nothing for backward. A rank without tokens only gathers parameters together with the other ranks.
View Engine::run_blocks(Frame& f, int64_t num_tokens) {
  const int64_t C = model_.config().hidden_size, L = model_.num_blocks();
  model_.begin(f);
  View x = f.push(num_tokens, C), y = f.push(num_tokens, C);
  parameters_.compute_in_float8(false);
  const ParameterViews root = parameters_.acquire(0);
  if (num_tokens > 0) model_.root().embed_forward(f, root, x, nullptr);
  parameters_.release(0);
  for (int64_t i = 0; i < L; ++i) {
    const ParameterViews p = parameters_.acquire(1 + i);
    if (context_.plan.options().forward_prefetch) parameters_.prefetch(2 + i);
    if (num_tokens > 0) model_.block(i).forward(f, p, x, y, nullptr);
    parameters_.release(1 + i);
    std::swap(x, y);
  }
  return x;
}

LossSum Engine::evaluate(const PackedBatch& packed) {
  const StackScope scope(*stack_);
  const Batch batch = upload(packed, false);
  Frame f = frame(batch, false);
  const View loss = loss_.view({1}, DType::f64);
  ops_->fill(loss, 0);
  const View x = run_blocks(f, batch.num_tokens);
  const ParameterViews head = parameters_.acquire(model_.head_unit());
  if (batch.num_targets > 0) model_.head().loss(f, head, x, loss);
  parameters_.release(model_.head_unit());
  const LossSum sum{read_f64(loss), batch.num_targets};
  check_gathering();
  return sum;
}

void Engine::check_gathering() {
  context_.streams.upload->synchronize();
  context_.streams.comm->synchronize();
}

}  // namespace tessera
