// Every strategy, tier and order of the engine against the plain run of one process on the same global batches, and
// every ledger against its plan.
#include "tessera/engine/engine.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "rank_test.h"
#include "tessera/base/random.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/engine/plan.h"

namespace tessera {
namespace {

constexpr int kSteps = 2, kMicroBatches = 3, kSequences = 5;  // 5 sequences: no world but 1 divides them
constexpr int64_t kVocabulary = 37, kNewTokens = 4;
constexpr double kLearningRate = 1e-2;
const WorkBounds kWork{{160, kSequences, 160}, {160, kSequences, 160}, {40, kSequences, 0}, kNewTokens};

ModelConfig small_config(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = kVocabulary;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.num_heads = 3;
  config.ff_dim = architecture == "bloom" ? 96 : 40;
  config.initializer_range = 0.2;
  config.hidden_dropout = config.attention_dropout = 0.1;
  return config;
}

using Sequence = std::pair<std::vector<int32_t>, std::vector<int32_t>>;  // ids, labels

// The sequences of one global micro-batch. The last of a step is short: some ranks of larger worlds have none of it.
std::vector<Sequence> sequences_of(int step, int micro_batch) {
  RandomStream random(static_cast<uint64_t>(100 * step + micro_batch), 1);
  std::vector<Sequence> sequences(micro_batch + 1 == kMicroBatches ? 2 : kSequences);
  for (auto& [ids, labels] : sequences) {
    const auto length = 2 + random.next_below(30);
    for (uint64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int32_t>(random.next_below(kVocabulary)));
      labels.push_back(t % 3 == 1 ? static_cast<int32_t>(random.next_below(kVocabulary)) : -100);
    }
  }
  return sequences;
}

PackedBatch pack(const std::vector<Sequence>& sequences, size_t begin, size_t end, int64_t first_sequence) {
  PackedBatch batch;
  batch.starts = {0};
  for (size_t i = begin; i < end; ++i) {
    const auto& [ids, labels] = sequences[i];
    batch.sequence_numbers.push_back(first_sequence + static_cast<int64_t>(i));
    batch.ids.insert(batch.ids.end(), ids.begin(), ids.end());
    batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
    batch.starts.push_back(static_cast<int32_t>(batch.ids.size()));
  }
  for (const int32_t label : batch.labels) batch.num_targets += label >= 0;
  return batch;
}

std::vector<PackedBatch> window_of(int step, int rank, int world_size, int num_micro_batches) {
  std::vector<PackedBatch> window;
  int64_t first = 0;
  for (int k = 0; k < num_micro_batches; ++k) {
    const auto sequences = sequences_of(step, kMicroBatches - num_micro_batches + k);
    const size_t n = sequences.size(), r = static_cast<size_t>(rank), R = static_cast<size_t>(world_size);
    window.push_back(pack(sequences, n * r / R, n * (r + 1) / R, first));
    first += static_cast<int64_t>(n);
  }
  return window;
}

using States = std::map<std::pair<int64_t, int>, std::vector<float>>;  // by unit and kind

struct Outcome {
  std::vector<double> losses, norms;
  double eval_loss = 0;
  std::vector<std::vector<int32_t>> answers;  // of this rank's prompts
  States states;                              // of all ranks
};

std::vector<std::vector<int32_t>> prompts_of(int rank, int world_size) {
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < kSequences; ++i) {
    if (i * world_size / kSequences == rank) prompts.push_back({i + 3, 2 * i + 1, 7});
  }
  return prompts;
}

// The whole arrays, from what each rank saves, in one exchange.
States all_states(Engine& engine, Communicator& world) {
  struct Piece {
    int64_t unit, kind, begin, size;
  };
  States states;
  for (int64_t u = 0; u < engine.model().num_units(); ++u) {
    for (const StateKind kind : kStateKinds) {
      // A value that is never written shows itself.
      states[{u, static_cast<int>(kind)}].assign(static_cast<size_t>(engine.model().unit(u).table().num_elems()), NAN);
    }
  }
  std::string own;
  engine.save_states([&](StateKind kind, int64_t unit, ElemRange range, View from) {
    EXPECT_EQ(range.size(), from.num_elems());
    EXPECT_EQ(from.dtype, DType::f32);
    const Piece piece{unit, static_cast<int64_t>(kind), range.begin, range.size()};
    own.append(reinterpret_cast<const char*>(&piece), sizeof piece);
    own.append(reinterpret_cast<const char*>(from.data), static_cast<size_t>(from.bytes()));
  });
  for (const std::string& text : world.all_gather_text(own, "states")) {
    for (size_t at = 0; at < text.size();) {
      Piece piece{};
      std::memcpy(&piece, text.data() + at, sizeof piece);
      at += sizeof piece;
      const size_t bytes = sizeof(float) * static_cast<size_t>(piece.size);
      std::memcpy(states.at({piece.unit, static_cast<int>(piece.kind)}).data() + piece.begin, text.data() + at, bytes);
      at += bytes;
    }
  }
  return states;
}

class Rig {
 public:
  Rig() : pool_(1) {}

  Outcome run(Communicator& world, Device& device, Device& host, const ModelConfig& config,
              const EngineOptions& options, int num_micro_batches, int ranks_per_node) {
    const auto enter = [&](Phase phase) {
      device.ledger().enter(phase);
      host.ledger().enter(phase);
    };
    Engine engine({device, host, world, ranks_per_node}, config, options);
    engine.prepare(kWork);
    engine.initialize_parameters(5);
    // Everything passes through a checkpoint's arrays once.
    enter(Phase::save);
    const auto states = all_states(engine, world);
    enter(Phase::resume);
    engine.load_states([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      const auto& all = states.at({unit, static_cast<int>(kind)});
      ASSERT_EQ(to.num_elems(), range.size());
      convert(all.data() + range.begin, DType::f32, to.data, to.dtype, static_cast<size_t>(range.size()));
    });
    Outcome outcome;
    const double loss_scale = options.dtype == DType::f16 ? 1024 : 1;
    for (int step = 0; step < kSteps; ++step) {
      enter(Phase::step);
      const auto window = window_of(step, world.rank(), world.size(), num_micro_batches);
      const StepResult result = engine.train_step(window, kLearningRate, loss_scale);
      EXPECT_FALSE(result.skipped);
      outcome.losses.push_back(result.loss());
      outcome.norms.push_back(result.gradient_norm);
    }
    enter(Phase::evaluation);
    const auto batch = window_of(9, world.rank(), world.size(), 3)[0];
    const LossSum loss = engine.evaluate(batch);
    const auto sums = world.sum({loss.loss_sum, static_cast<double>(loss.num_targets)}, "evaluation");
    outcome.eval_loss = sums[0] / sums[1];
    outcome.answers = engine.generate(prompts_of(world.rank(), world.size()), kNewTokens, 1);
    enter(Phase::save);
    outcome.states = all_states(engine, world);
    // What the first rank would save as a model is what all ranks would save in a checkpoint.
    int64_t num_seen = 0;
    engine.collect_parameters([&](int64_t unit, View whole) {
      const auto& expected = outcome.states.at({unit, static_cast<int>(StateKind::parameters)});
      EXPECT_EQ(std::vector<float>(whole.as<float>(), whole.as<float>() + whole.num_elems()), expected);
      EXPECT_EQ(unit, num_seen++);
    });
    EXPECT_EQ(num_seen, world.rank() == 0 ? engine.model().num_units() : 0);
    return outcome;
  }

  // The plain run: one process, all sequences.
  Outcome plain(const ModelConfig& config, EngineOptions options, int num_micro_batches) {
    const auto device = make_cpu_device(pool_), host = make_cpu_device(pool_);
    const auto alone = make_self_communicator();
    options.sharding = {};
    return run(*alone, *device, *host, config, options, num_micro_batches, 1);
  }

  // As this rank of the test's world. The ledgers must be those of the plan.
  Outcome sharded(const ModelConfig& config, const EngineOptions& options, int num_micro_batches, int ranks_per_node) {
    World& world = test_world();
    const auto device = test_uses_cuda() ? make_cuda_device(world.local_rank()) : make_cpu_device(pool_);
    const auto host = test_uses_cuda() ? make_pinned_host_device(pool_) : make_cpu_device(pool_);
    const auto communicator = world.make_communicator(*device);
    const Outcome outcome = run(*communicator, *device, *host, config, options, num_micro_batches, ranks_per_node);
    const Plan plan = plan_run(config, options, kWork,
                               {.world_size = world.size(),
                                .rank = world.rank(),
                                .ranks_per_node = ranks_per_node,
                                .num_threads = 1,
                                .grad_accum = num_micro_batches,
                                .device = device->kind()});
    for (int p = 0; p < kNumPhases; ++p) {
      for (int c = 0; c < kNumCategories; ++c) {
        const auto phase = static_cast<Phase>(p);
        const auto category = static_cast<Category>(c);
        if (category == Category::activations || category == Category::kv_cache) {
          // Bounds are of the run's largest batches, which a rank need not meet: at most what was planned.
          EXPECT_LE(device->ledger().peak(phase, category), plan.device.peak(phase, category));
          continue;
        }
        if (phase == Phase::load && category == Category::staging) {
          // New parameters are drawn where they are kept; those of a file may have to pass through the host.
          EXPECT_LE(host->ledger().peak(phase, category), plan.host.peak(phase, category));
          continue;
        }
        EXPECT_EQ(device->ledger().peak(phase, category), plan.device.peak(phase, category))
            << name_of(phase) << " " << name_of(category);
        EXPECT_EQ(host->ledger().peak(phase, category), plan.host.peak(phase, category))
            << "host " << name_of(phase) << " " << name_of(category);
      }
    }
    return outcome;
  }

 private:
  ThreadPool pool_;
};

// How far a run may be from the plain one of the same precision.
struct Tolerance {
  double loss, norm, parameters;  // relative; the last of the root of the sum of squares
};

// f32 sums of a few hundred terms differ by their order: 1e-7 times the root of their number, here some 2e-6 of the
// loss. AdamW divides by the gradient's own size, so that its first steps move a parameter by the learning rate times
// at most the relative error of that gradient: elements whose gradient nearly cancels get a wider bound, and the biases
// of keys, whose gradient is of rounding alone, move by the learning rate all the same.
constexpr Tolerance kSinglePrecision{1e-4, 1e-3, 1e-2};

// In 16 bits a difference of that kind may tip an element of an activation to the next number, u = 2^-8 (bf16) or 2^-11
// of it away, and gradients that are reduced in 16 bits differ by as much; the loss and the norm average over such
// elements. More of AdamW's small gradients change their sign.
Tolerance tolerance_of(const EngineOptions& options) {
  if (options.dtype == DType::f32 && options.sharding.reduce_dtype == DType::f32) return kSinglePrecision;
  const bool has_bf16 = options.dtype == DType::bf16 || options.sharding.reduce_dtype == DType::bf16;
  const double u = has_bf16 ? 0x1p-8 : 0x1p-11;
  return {u, 4 * u, 3e-2};
}

void expect_close(const Outcome& plain, const Outcome& outcome, const Tolerance& tolerance) {
  for (size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], plain.losses[i], tolerance.loss * plain.losses[i]) << "step " << i;
    EXPECT_NEAR(outcome.norms[i], plain.norms[i], tolerance.norm * plain.norms[i]) << "step " << i;
  }
  EXPECT_NEAR(outcome.eval_loss, plain.eval_loss, tolerance.loss * plain.eval_loss);
  double squares = 0, differences = 0, largest = 0;
  for (const auto& [key, values] : outcome.states) {
    if (key.second != static_cast<int>(StateKind::parameters)) continue;
    const auto& all = plain.states.at(key);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = all[i], difference = values[i] - expected;
      squares += expected * expected;
      differences += difference * difference;
      largest = std::max(largest, std::abs(difference));
    }
  }
  EXPECT_LE(largest, 2 * kSteps * kLearningRate);
  EXPECT_LE(std::sqrt(differences), tolerance.parameters * std::sqrt(squares));
}

bool same_bits(const Outcome& a, const Outcome& b) {
  return a.losses == b.losses && a.norms == b.norms && a.eval_loss == b.eval_loss && a.answers == b.answers &&
         a.states == b.states;
}

struct Case {
  ShardOptions options;
  bool checkpoint_blocks;
  std::string name;
};

// Every strategy on every tier it may have, with every time of reducing, with and without checkpointing.
std::vector<Case> all_cases() {
  struct Tiers {
    Tier optimizer, gradients, parameters;
  };
  constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
  std::vector<Case> cases;
  int turn = 0;
  for (const auto strategy :
       {ShardingStrategy::no_shard, ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::shard_grad_op,
        ShardingStrategy::full_shard, ShardingStrategy::hybrid_shard, ShardingStrategy::hybrid_shard_zero2}) {
    for (const Tiers& tiers : {Tiers{D, D, D}, Tiers{H, D, D}, Tiers{H, H, D}, Tiers{H, H, H}, Tiers{F, D, D},
                               Tiers{F, F, F}, Tiers{F, H, H}}) {
      if (tiers.parameters != D && !row_of(strategy).shard_parameters && test_world().size() > 1) continue;
      for (const auto sync : {GradientSync::automatic, GradientSync::micro, GradientSync::step}) {
        if (tiers.gradients != D && sync == GradientSync::step) continue;
        for (const bool checkpoint_blocks : {false, true}) {
          ShardOptions options;
          options.strategy = strategy;
          options.optimizer = tiers.optimizer;
          options.gradients = tiers.gradients;
          options.parameters = tiers.parameters;
          options.gradient_sync = sync;
          // The orders of gathering go round among the cases.
          options.backward_prefetch = static_cast<BackwardPrefetch>(turn % 3);
          options.forward_prefetch = turn / 3 % 2;
          options.max_units_in_flight = 1 + turn % 4;
          options.bucket_bytes = turn % 2 ? 1000 : 100000;
          options.file_folder = testing::TempDir();
          ++turn;
          cases.push_back({options, checkpoint_blocks,
                           std::string(row_of(strategy).name) + " optimizer:" + name_of(tiers.optimizer) +
                               " gradients:" + name_of(tiers.gradients) + " parameters:" + name_of(tiers.parameters) +
                               " sync:" + std::to_string(static_cast<int>(sync)) +
                               " checkpoint:" + std::to_string(checkpoint_blocks)});
        }
      }
    }
  }
  return cases;
}

// A world of 4 is two nodes of 2, so that hybrid strategies have shards and replicas.
int ranks_per_node() {
  return test_world().size() == 4 ? 2 : test_world().size();
}

// One of every `stride` of all cases. A stride that shares no factor with the numbers of tiers, times and the like goes
// round among all of them.
std::vector<Case> some_cases(size_t stride, size_t first) {
  const std::vector<Case> all = all_cases();
  std::vector<Case> some;
  for (size_t i = first; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

// Against the plain run, and where reductions are the same, by groups and by when gradients are reduced, against each
// other, to the bit.
void check(const std::vector<Case>& cases, EngineOptions options, int num_micro_batches) {
  Rig rig;
  const ModelConfig config = small_config("bloom");
  options.max_grad_norm = 0.5;
  options.adamw.weight_decay = 0.1;
  options.seed = 11;
  const DType reduce_dtype = options.sharding.reduce_dtype;
  const Outcome plain = rig.plain(config, options, num_micro_batches);
  EXPECT_LT(plain.losses.back(), plain.losses.front() + 1);
  std::map<std::tuple<int, bool, bool, bool>, Outcome> same_reductions;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    options.sharding = test.options;
    options.sharding.reduce_dtype = reduce_dtype;
    options.checkpoint_blocks = test.checkpoint_blocks;
    const Outcome outcome = rig.sharded(config, options, num_micro_batches, ranks_per_node());
    expect_close(plain, outcome, tolerance_of(options));
    const ShardPlan plan(test.options, test_world().size(), test_world().rank(), ranks_per_node());
    // A GPU's sums of squares and AdamW round otherwise than the CPU's, which takes its place where states are
    // offloaded.
    const bool other_adamw = test_uses_cuda() && test.options.optimizer != Tier::device;
    const bool other_norm = test_uses_cuda() && test.options.gradients != Tier::device;
    auto& first = same_reductions[{plan.shard_group_size(), plan.reduce_every_micro_batch(), other_adamw, other_norm}];
    if (first.losses.empty()) first = outcome;
    EXPECT_TRUE(same_bits(first, outcome));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Engine, EveryStrategyAndTierGivesThePlainRun) {
  check(all_cases(), {}, kMicroBatches);
}

TEST(Engine, StepsOfOneMicroBatchGiveThePlainRun) {
  check(some_cases(5, 0), {}, 1);
}

// Parameters and activations of 16 bits, masters of 32, and gradients that travel in either.
TEST(Engine, HalvesGiveThePlainRun) {
  size_t first = 0;
  for (const auto& [dtype, reduce_dtype] :
       {std::pair{DType::bf16, DType::f32}, std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f32},
        std::pair{DType::f16, DType::f16}, std::pair{DType::f32, DType::bf16}}) {
    SCOPED_TRACE(std::string(name_of(dtype)) + " reduced in " + name_of(reduce_dtype));
    EngineOptions options;
    options.dtype = dtype;
    options.sharding.reduce_dtype = reduce_dtype;
    check(some_cases(23, first++), options, kMicroBatches);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Engine, ARunRepeatsBitForBit) {
  Rig rig;
  EngineOptions options;
  options.sharding.strategy = ShardingStrategy::full_shard;
  options.sharding.optimizer = options.sharding.gradients = Tier::host;
  const ModelConfig config = small_config("gpt");
  const Outcome first = rig.sharded(config, options, kMicroBatches, ranks_per_node());
  const Outcome again = rig.sharded(config, options, kMicroBatches, ranks_per_node());
  EXPECT_TRUE(same_bits(first, again));
  expect_close(rig.plain(config, options, kMicroBatches), first, kSinglePrecision);
}

// What each rank saves covers the model once, and any world can read it.
TEST(Engine, SavedRangesCoverEveryElementOnce) {
  for (const int world_size : {1, 2, 3, 4, 6}) {
    for (const auto strategy : {ShardingStrategy::no_shard, ShardingStrategy::zero1, ShardingStrategy::hybrid_shard}) {
      for (const int64_t elems : {1, 64, 65, 1000, 4096}) {
        int64_t total = 0;
        std::vector<ElemRange> ranges;
        for (int rank = 0; rank < world_size; ++rank) {
          ShardOptions sharding;
          sharding.strategy = strategy;
          const ShardPlan plan(sharding, world_size, rank, world_size % 2 ? 1 : 2);
          const ElemRange range = plan.saved(plan.cut(elems));
          for (const ElemRange& other : ranges) EXPECT_TRUE(range.end <= other.begin || other.end <= range.begin);
          if (range.size() > 0) ranges.push_back(range);
          total += range.size();
        }
        EXPECT_EQ(total, elems);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
