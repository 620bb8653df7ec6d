// The plan computes memory for a batch that reaches all bounds of a job (WorkBounds). Every smaller batch must fit into
// this memory. The tests draw random jobs, and random batches within the bounds of each job. One test runs on the CPU.
// The other test runs on the counting device, which does not compute. A batch takes only microseconds there, so this
// test has many more jobs.
//
// TESSERA_TEST_CASES multiplies the number of jobs (default 1).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tessera/base/random.h"
#include "tessera/engine/plan.h"

namespace tessera {
namespace {

int64_t times_cases(int64_t number) {
  const char* factor = std::getenv("TESSERA_TEST_CASES");
  return number * (factor ? std::max(1, std::atoi(factor)) : 1);
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed, 22) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.next_below(static_cast<uint64_t>(high - low + 1)));
  }
  // Draws a log-uniform number: every range from one power of two to the next is equally likely.
  int64_t magnitude(int64_t low, int64_t high) {
    const double from = std::log2(low), to = std::log2(high);
    return std::clamp(static_cast<int64_t>(std::exp2(from + random_.next_uniform() * (to - from))), low, high);
  }
  bool flip() { return random_.next_below(2) == 1; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_.next_below(values.size())];
  }

 private:
  RandomStream random_;
};

// A model, its options and the bounds of its batches.
struct Job {
  ModelConfig config;
  EngineOptions options;
  WorkBounds work;
  PlannedRank rank;

  std::string text() const {
    std::ostringstream out;
    const Recomputation& r = options.recomputation;
    out << config.architecture << " L " << config.num_layers << " recomputed " << r.blocks << " " << r.mlp << " "
        << r.attention << " V " << config.vocab_size << " C " << config.hidden_size << " H " << config.num_heads
        << " tied " << config.tied_head << " dtype " << static_cast<int>(options.dtype) << " chunk "
        << options.head_chunk_bytes << " strategy " << static_cast<int>(options.sharding.strategy) << " device "
        << static_cast<int>(rank.device) << " ranks " << rank.world_size << " bounds";
    for (const BatchBounds& b : {work.training, work.evaluation, work.generation}) {
      out << " {" << b.num_tokens << ", " << b.num_sequences << ", " << b.num_targets << "}";
    }
    return out.str();
  }
};

BatchBounds draw_bounds(Draw& draw, int64_t most_tokens) {
  BatchBounds b;
  b.num_tokens = draw.magnitude(1, most_tokens);
  b.num_sequences = draw.between(1, std::min<int64_t>(b.num_tokens, 40));
  b.num_targets = draw.flip() ? b.num_tokens : draw.between(0, b.num_tokens);
  return b;
}

Job draw_job(Draw& draw, int64_t most_tokens, int64_t most_vocabulary, int64_t most_chunk_bytes) {
  Job job;
  ModelConfig& c = job.config;
  c.architecture = draw.one_of({"bloom", "gpt", "llama"});
  c.vocab_size = draw.magnitude(2, most_vocabulary);
  c.num_heads = draw.between(1, 4);
  c.hidden_size = c.num_heads * draw.one_of<int64_t>({4, 8, 12, 40, 64});
  c.ff_dim = c.architecture == "bloom" ? 4 * c.hidden_size : draw.between(1, 3 * c.hidden_size);
  c.num_layers = draw.between(1, 3);
  c.initializer_range = 0.02;
  c.residual_from_norm = draw.flip();
  c.tied_head = draw.flip();
  if (draw.flip()) {
    job.options.frozen = {draw.one_of({"*.0.*", "*embed*", "*.bias", "*norm*", "*[lh].weight"})};
  }
  c.hidden_dropout = c.attention_dropout = draw.flip() ? 0.1 : 0;
  if (c.architecture == "llama") {
    c.num_kv_heads = draw.flip() ? 1 : c.num_heads;
    c.head_channels = draw.one_of<int64_t>({0, 2, 80});
    c.head_norms = draw.flip();
    c.qkv_bias = c.o_bias = c.mlp_bias = draw.flip();
    c.sliding_window = draw.between(0, 9);
  }
  EngineOptions& o = job.options;
  o.dtype = draw.one_of({DType::f32, DType::f64, DType::bf16, DType::f16});
  for (int64_t* const number : {&o.recomputation.blocks, &o.recomputation.mlp, &o.recomputation.attention}) {
    *number = draw.one_of({int64_t{0}, draw.between(0, c.num_layers), kAllBlocks});
  }
  if (o.dtype != DType::f64 && draw.flip()) {
    o.optimizer_states = o.dtype == DType::bf16 && draw.flip() ? OptimizerStates::bf16 : OptimizerStates::q8;
  }
  o.max_grad_norm = draw.flip() ? 1 : 0;
  o.head_chunk_bytes = draw.magnitude(64, most_chunk_bytes);
  job.work.training = draw_bounds(draw, most_tokens);
  job.work.evaluation = draw_bounds(draw, most_tokens);
  job.work.generation = draw_bounds(draw, most_tokens);
  job.work.generation.num_targets = 0;
  job.work.max_new_tokens = draw.between(1, 3);
  job.work.micro_batches = draw.between(1, 3);
  return job;
}

// Draws sizes within the bounds. In about a third of the batches, the number of tokens is close to its maximum.
// Independently, the number of targets is close to its maximum in about a third of the batches.
BatchBounds draw_within(Draw& draw, const BatchBounds& most) {
  const auto near = [&](int64_t value) { return draw.between(std::max<int64_t>(0, value - 3), value); };
  BatchBounds b;
  b.num_tokens = draw.between(0, 2) == 0 ? near(most.num_tokens) : draw.between(0, most.num_tokens);
  b.num_sequences = std::min(b.num_tokens, draw.between(1, most.num_sequences));
  const int64_t targets = std::min(b.num_tokens, most.num_targets);
  b.num_targets = draw.between(0, 2) == 0 ? near(targets) : draw.between(0, targets);
  return b;
}

PackedBatch draw_batch(Draw& draw, const BatchBounds& most, int64_t vocabulary) {
  const BatchBounds b = draw_within(draw, most);
  PackedBatch batch;
  for (int64_t i = 0; i < b.num_tokens; ++i) {
    batch.ids.push_back(static_cast<int32_t>(draw.between(0, vocabulary - 1)));
  }
  batch.labels.assign(batch.ids.size(), -100);
  for (int64_t i = 0; i < b.num_targets; ++i) {  // the targets are spread over the tokens
    batch.labels[static_cast<size_t>(i * b.num_tokens / b.num_targets)] =
        static_cast<int32_t>(draw.between(0, vocabulary - 1));
  }
  batch.num_targets = static_cast<int32_t>(b.num_targets);
  batch.starts = {0};
  for (int64_t s = 1; s <= b.num_sequences; ++s) {
    batch.starts.push_back(static_cast<int32_t>(s * b.num_tokens / b.num_sequences));
  }
  return batch;
}

std::vector<std::vector<int32_t>> draw_prompts(Draw& draw, const BatchBounds& most) {
  const BatchBounds b = draw_within(draw, most);
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(b.num_sequences), std::vector<int32_t>{0});
  if (!prompts.empty()) prompts[0].resize(static_cast<size_t>(b.num_tokens - b.num_sequences + 1));
  return prompts;
}

// Runs random batches within the job's bounds. Each batch must fit into the memory that was planned for the largest
// batch.
void run_batches(Draw& draw, Engine& engine, const Job& job, const Plan& plan, int64_t num_batches) {
  engine.prepare(job.work);
  engine.states().initialize(1);
  const int64_t scratch_bytes = engine.ops().scratch_bytes();
  const auto enter = [&](Phase phase) {
    for (Device* device : {&engine.device(), &engine.host()}) device->ledger().enter(phase);
  };
  const int64_t V = job.config.vocab_size;
  for (int64_t i = 0; i < num_batches; ++i) {
    enter(Phase::step);
    std::vector<PackedBatch> window;
    for (int64_t m = draw.between(1, job.work.micro_batches); m > 0; --m) {
      window.push_back(draw_batch(draw, job.work.training, V));
    }
    ASSERT_NO_THROW(engine.train_step(window, 1e-3)) << job.text();
    enter(Phase::evaluation);
    ASSERT_NO_THROW(engine.evaluate(draw_batch(draw, job.work.evaluation, V))) << job.text();
    const auto sampling = i % 2 == 0 ? std::nullopt : std::optional(Sampling{.temperature = 0.5, .top_k = 3});
    ASSERT_NO_THROW(engine.generate(draw_prompts(draw, job.work.generation),
                                    {.max_new_tokens = job.work.max_new_tokens, .eos_id = 0, .sampling = sampling}))
        << job.text();
    ASSERT_EQ(engine.ops().scratch_bytes(), scratch_bytes) << job.text();
  }
  for (const Phase phase : {Phase::step, Phase::evaluation}) {
    ASSERT_LE(engine.device().ledger().peak_total(phase), plan.device.peak_total(phase)) << job.text();
    ASSERT_LE(engine.host().ledger().peak_total(phase), plan.host.peak_total(phase)) << job.text();
  }
}

TEST(MemoryBounds, EveryBatchFitsOnTheCountingDevice) {
  using enum ShardingStrategy;
  for (int64_t seed = 0; seed < times_cases(6000); ++seed) {
    Draw draw(static_cast<uint64_t>(seed));
    Job job = draw_job(draw, 3000, 300000, 128 << 20);
    job.rank.device = draw.one_of({DeviceKind::cpu, DeviceKind::cuda});
    if (job.rank.device == DeviceKind::cuda) job.options.cuda_graphs = false;
    job.rank.world_size = draw.one_of({1, 1, 2, 4});
    job.rank.rank = static_cast<int>(draw.between(0, job.rank.world_size - 1));
    job.rank.ranks_per_node = job.rank.world_size;
    job.options.sharding.strategy = draw.one_of({no_shard, zero1, zero2, full_shard, shard_grad_op});
    const auto device = make_counting_device({job.rank.device, 1}), host = make_counting_device();
    const auto world = make_counting_communicator(*device, job.rank.rank, job.rank.world_size);
    Engine engine({*device, *host, *world, job.rank.ranks_per_node}, job.config, job.options);
    const Plan plan = plan_run(job.config, job.options, job.work, job.rank);
    ASSERT_NO_FATAL_FAILURE(run_batches(draw, engine, job, plan, 12)) << "seed " << seed;
  }
}

TEST(MemoryBounds, EveryBatchFitsOnTheCpu) {
  ThreadPool pool(2);
  const auto alone = make_self_communicator();
  for (int64_t seed = 0; seed < times_cases(100); ++seed) {
    Draw draw(static_cast<uint64_t>(seed) + (uint64_t{1} << 40));
    Job job = draw_job(draw, 100, 500, 64 << 10);
    job.rank.num_threads = 2;
    const auto device = make_cpu_device(pool), host = make_cpu_device(pool);
    Engine engine({*device, *host, *alone, 1}, job.config, job.options);
    const Plan plan = plan_run(job.config, job.options, job.work, job.rank);
    ASSERT_NO_FATAL_FAILURE(run_batches(draw, engine, job, plan, 8)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tessera
