// Compares every strategy, every tier (device, host memory or file) and every order of gathering with the plain run:
// one process on the same global batches. Also compares every ledger with its plan.
#include <array>
#include <map>
#include <tuple>

#include "../unit/engine/engine_probe.h"
#include "engine_rig.h"

namespace tessera {
namespace {

struct Case {
  ShardOptions options;
  Recomputation recomputation;
  std::string name;
};

// Of the model's 3 blocks.
constexpr Recomputation kRecomputations[] = {{.blocks = 1},
                                             {.mlp = 3},
                                             {.blocks = 2, .attention = 1},
                                             {.blocks = 3},
                                             {.attention = 3},
                                             {.blocks = 1, .mlp = 1, .attention = 2},
                                             {.mlp = 2, .attention = 1}};

// Combines every strategy with each offload below and each GradientSync, with and without recomputation. Omits
// unsupported combinations.
std::vector<Case> all_cases() {
  constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
  std::vector<Case> cases;
  int turn = 0;
  for (const auto strategy :
       {ShardingStrategy::no_shard, ShardingStrategy::zero1, ShardingStrategy::zero2, ShardingStrategy::shard_grad_op,
        ShardingStrategy::full_shard, ShardingStrategy::hybrid_shard, ShardingStrategy::hybrid_shard_zero2}) {
    for (const Offload& offload :
         {Offload{D, D, D}, Offload{H, D, D}, Offload{H, H, D}, Offload{H, H, H}, Offload{F, D, D}, Offload{F, F, F},
          Offload{F, H, H}, Offload{D, D, H}, Offload{D, D, F}}) {
      if (offload.parameters != D && !row_of(strategy).shard_parameters && test_world().size() > 1) continue;
      for (const auto sync : {GradientSync::automatic, GradientSync::micro, GradientSync::step}) {
        if (offload.gradients != D && sync == GradientSync::step) continue;
        for (const bool recomputes : {false, true}) {
          ShardOptions options;
          options.strategy = strategy;
          options.offload = offload;
          options.gradient_sync = sync;
          // The values of the other options change from case to case.
          options.backward_prefetch = static_cast<BackwardPrefetch>(turn % 3);
          options.forward_prefetch = turn / 3 % 2;
          options.max_units_in_flight = 1 + turn % 4;
          options.bucket_bytes = turn % 2 ? 1000 : 100000;
          if (turn / 6 % 5 < 4) options.late_blocks = turn / 6 % 5;     // unset: on a GPU, measured times set it
          if (turn / 2 % 3) options.piece_elems = turn / 2 % 3 * 1000;  // unset: a unit is one piece
          options.file_folder = testing::TempDir();
          options.device_update_percent = turn % 7 < 4 ? 0 : turn % 7 * 16;
          if (turn % 5 < 2) {  // only some units are offloaded
            using enum OffloadedPart::Of;
            Offload& partial = options.offload;
            if (turn % 4 < 3) partial.part_of_optimizer = {blocks, 1 + turn % 4};
            partial.part_of_gradients = {blocks, 1};
            if (turn / 2 % 5) partial.part_of_parameters = {percent, 20 * (turn / 2 % 5)};
          }
          const Recomputation recomputation = recomputes ? kRecomputations[turn / 2 % 7] : Recomputation{};
          ++turn;
          cases.push_back(
              {options, recomputation,
               std::string(row_of(strategy).name) + " optimizer:" + name_of(offload.optimizer) +
                   " gradients:" + name_of(offload.gradients) + " parameters:" + name_of(offload.parameters) +
                   " sync:" + std::to_string(static_cast<int>(sync)) +
                   " blocks:" + std::to_string(recomputation.blocks) + " mlp:" + std::to_string(recomputation.mlp) +
                   " attention:" + std::to_string(recomputation.attention)});
        }
      }
    }
  }
  return cases;
}

// 4 ranks count as two nodes of 2 ranks. A hybrid strategy then shards the model over the 2 ranks of each node, and
// each node holds a copy.
int ranks_per_node() {
  return test_world().size() == 4 ? 2 : test_world().size();
}

// Every `stride`-th case, starting with case number `first` (counted from 0). The strides in this file are not
// multiples of 2, 3 or 23, because such a stride could select the same GradientSync, the same recomputation or the same
// tiers every time.
std::vector<Case> some_cases(size_t stride, size_t first) {
  const std::vector<Case> all = all_cases();
  std::vector<Case> some;
  for (size_t i = first; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

// Returns all cases on GPUs, and also with four ranks, because only four ranks form two nodes. Otherwise returns a
// fifth of the cases, and a different fifth for each number of ranks. The program that is built with
// TESSERA_TEST_CUDA_STREAMS (CUDA streams without a GPU) always runs only a fifth.
std::vector<Case> cases_of_world() {
#ifdef TESSERA_TEST_CUDA_STREAMS
  const bool all = false;
#else
  const bool all = test_uses_cuda() || test_world().size() == 4;
#endif
  return all ? all_cases() : some_cases(5, static_cast<size_t>(test_world().size()));
}

// Compares each case with the plain run. Two cases must also agree bit for bit with each other if they reduce in groups
// of the same size, reduce equally often (per micro-batch or per step), and add up the norm in the same order.
void check(const std::vector<Case>& cases, EngineOptions options, int num_micro_batches, bool tied_head = true,
           const char* architecture = "bloom", std::vector<std::string> frozen = {},
           std::optional<AdapterOptions> adapter = {}, std::optional<Quantization> quantization = {}) {
  Rig rig;
  ModelConfig config = small_config(architecture);
  if (options.float8) {  // needs multiples of 16, and gated layers that round to 8 bits a multiple of 128
    config.hidden_size = 16, config.num_heads = 2;
    config.ff_dim = std::string_view(architecture) == "bloom" ? 64 : 128;
    if (config.head_channels > 0) config.head_channels = 8;
  }
  config.adapter = std::move(adapter);
  config.quantization = std::move(quantization);
  config.tied_head = tied_head;
  options.frozen = std::move(frozen);
  options.max_grad_norm = 0.5;
  options.adamw.weight_decay = 0.1;
  options.seed = 11;
  const std::optional<DType> reduce_dtype = options.sharding.reduce_dtype;
  const Outcome plain = rig.plain(config, options, num_micro_batches);
  EXPECT_LT(plain.losses.back(), plain.losses.front() + 1);
  std::map<std::tuple<int, bool, int64_t>, Outcome> same_reductions;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    options.sharding = test.options;
    options.sharding.reduce_dtype = reduce_dtype;
    options.recomputation = test.recomputation;
    const Outcome outcome = rig.sharded(config, options, num_micro_batches, ranks_per_node());
    expect_close(plain, outcome, tolerance_of(options));
    if (testing::Test::HasFailure()) return;
    const ShardPlan plan(test.options, test_world().size(), test_world().rank(), ranks_per_node());
    // NCCL adds more than two numbers in an order that depends on the collective and on the position in a bucket.
    // no_shard is the only strategy that reduces in buckets, and the only one without sharded optimizer states. With
    // more than two GPUs, its cases are therefore not compared bit for bit.
    if (test_uses_cuda() && test_world().size() > 2 && !plan.shard_optimizer()) continue;
    // pieces_of_norm identifies the order of additions in the norm. If gradients accumulate in host memory or in a
    // file, the host computes their norm piece by piece, and the size of a piece determines the order. Otherwise the
    // device computes the norm. A CPU device takes each unit as one piece. This is the same order as with the default
    // piece size, which exceeds the size of every unit here. A GPU has its own order, with the value 0.
    const int64_t on_device = test_uses_cuda() ? 0 : ShardOptions().piece_elems;
    const bool beyond = test.options.offload.gradients != Tier::device && num_micro_batches > 1;
    const int64_t pieces_of_norm = beyond ? test.options.piece_elems : on_device;
    // Gradients of some units may accumulate on the device and those of others beyond it. Their norms then have the two
    // orders.
    if (beyond && test.options.offload.part_of_gradients.of != OffloadedPart::Of::all && pieces_of_norm != on_device)
      continue;
    auto& first = same_reductions[{plan.shard_group_size(), plan.reduce_every_micro_batch(), pieces_of_norm}];
    if (first.losses.empty()) first = outcome;
    EXPECT_TRUE(same_bits(first, outcome));
    const bool has_wide_weights = !config.quantization;
    if (options.float8 && has_wide_weights && plan.shard_parameters() &&
        test.options.offload.parameters == Tier::device) {
      options.sharding.gather_float8 = true;
      EXPECT_TRUE(same_bits(outcome, rig.sharded(config, options, num_micro_batches, ranks_per_node())))
          << "gathered in 8 bits";
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Engine, EveryStrategyAndTierGivesThePlainRun) {
  check(cases_of_world(), {}, kMicroBatches);
}

TEST(Engine, EveryStrategyAndTierGivesThePlainRunOfAnUntiedHead) {
  check(some_cases(5, 2), {}, 1, false);
  check(some_cases(7, 1), {}, kMicroBatches, false);
}

TEST(Engine, EveryStrategyAndTierGivesThePlainRunOfQwen3) {
  check(some_cases(13, 1), {}, kMicroBatches, true, "qwen3");
  check(some_cases(17, 11), {}, kMicroBatches, false, "qwen3");
}

// Tests adapters of all layers, of some joined layers, of few blocks and of the head, with dropout and with parts of
// the base that are trained whole.
TEST(Engine, EveryStrategyAndTierGivesThePlainRunWithAdapters) {
  struct Adapted {
    const char* architecture;
    bool tied_head;
    DType dtype;
    AdapterOptions options;
  };
  const Adapted all[] = {
      {"bloom", true, DType::f32, {.rank = 3, .alpha = 5}},
      {"llama", false, DType::bf16, {.rank = 2, .alpha = 4, .dropout = 0.2, .whole = {"lm_head"}}},
      {"qwen3",
       true,
       DType::f32,
       {.rank = 4, .dropout = 0.3, .targets = {"q_proj", "v_proj", "lm_head"}, .ranks = {{"v_proj", 1}}}},
      {"gpt", false, DType::f32, {.rank = 2, .layers = {1}, .biases = AdaptedBiases::all}},
      {"qwen2", false, DType::f16, {.rank = 2, .excluded = {"o_proj"}, .biases = AdaptedBiases::lora_only}}};
  size_t first = 0;
  for (const auto& [architecture, tied_head, dtype, adapter] : all) {
    SCOPED_TRACE(architecture);
    EngineOptions options;
    options.dtype = dtype;
    check(some_cases(21, 3 * first), options, first % 2 ? 1 : kMicroBatches, tied_head, architecture, {}, adapter);
    ++first;
    if (testing::Test::HasFailure()) return;
  }
}

// Each tensor is one group, so that ranks keep different numbers of groups. Some layers are not quantized, although
// kernels join them with others that are.
TEST(Engine, EveryStrategyAndTierGivesThePlainRunWithAQuantizedBase) {
  EngineOptions options;
  check(some_cases(21, 2), options, kMicroBatches, true, "bloom", {}, AdapterOptions{.rank = 3}, Quantization{});
  options.dtype = DType::bf16;
  const AdapterOptions adapter{
      .rank = 2, .dropout = 0.2, .targets = {"q_proj", "up_proj"}, .whole = {"layers.1.mlp.down_proj"}};
  check(some_cases(21, 9), options, 1, false, "qwen3", {}, adapter, Quantization{{"k_proj", "model.layers.2.mlp"}});
}

// Tests units with only frozen parameters, units with both frozen and trainable parameters, and backward passes that
// end before the embedding. The rig checks that frozen parameters keep their bits.
TEST(Engine, EveryStrategyAndTierGivesThePlainRunWithFrozenParameters) {
  const std::vector<std::string> all[] = {
      {"word_embeddings*", "h.0.*"}, {"*.bias"},         {"h.1.*"},
      {"*[!s].weight", "ln_f*"},     {"h.*", "*norm.*"}, {"word*", "ln_f*", "lm_head*"}};
  size_t first = 0;
  for (const std::vector<std::string>& frozen : all) {
    for (const bool tied_head : {true, false}) {
      if (tied_head && frozen.back() == "lm_head*") continue;
      SCOPED_TRACE(frozen[0] + (tied_head ? "" : " untied"));
      EngineOptions options;
      options.dtype = first % 3 == 2 ? DType::bf16 : DType::f32;
      check(some_cases(25, 2 * first), options, first % 2 ? 1 : kMicroBatches, tied_head, "bloom", frozen);
      ++first;
      if (testing::Test::HasFailure()) return;
    }
  }
  check(some_cases(25, 23), {}, 1, false, "qwen3", {"embed*", "layers.0.*"});
  check(some_cases(25, 24), {}, kMicroBatches, true, "qwen3", {"*[qkv]_proj.*", "*norm.weight"});
  // On a GPU, this engine has no kernels for host memory, because it offloads nothing. Saving and loading frozen 16-bit
  // tensors must not need such kernels.
  EngineOptions sixteen_bits;
  sixteen_bits.dtype = DType::f16;
  check({all_cases()[0]}, sixteen_bits, 1, true, "bloom", {"h.1.*"});
}

// Combines every order of gathering with four pairs of a strategy and a tier. The tier holds parameters and optimizer
// states.
TEST(Engine, EveryOrderOfGatheringGivesThePlainRun) {
  std::vector<Case> cases;
  for (const auto& [strategy, tier] :
       {std::pair{ShardingStrategy::full_shard, Tier::device}, std::pair{ShardingStrategy::full_shard, Tier::file},
        std::pair{ShardingStrategy::shard_grad_op, Tier::host}, std::pair{ShardingStrategy::zero1, Tier::device}}) {
    for (int turn = 0; turn < 3 * 2 * 2 * 2; ++turn) {
      ShardOptions options;
      options.strategy = strategy;
      options.offload.parameters = options.offload.optimizer = tier;
      options.file_folder = testing::TempDir();
      options.max_units_in_flight = turn / 2 % 2 == 0 ? 1 : 3;
      options.forward_prefetch = turn / 4 % 2 == 1;
      options.backward_prefetch = static_cast<BackwardPrefetch>(turn / 8);
      cases.push_back(
          {options, turn % 2 == 1 ? kRecomputations[turn / 2 % 7] : Recomputation{},
           row_of(strategy).name + std::string(" parameters:") + name_of(tier) + " turn:" + std::to_string(turn)});
    }
  }
  check(cases, {}, 1);
  std::vector<Case> fifth;
  for (size_t i = 2; i < cases.size(); i += 5) fifth.push_back(cases[i]);
  check(fifth, {}, 1, false);
}

TEST(Engine, StepsOfOneMicroBatchGiveThePlainRun) {
  check(some_cases(7, 0), {}, 1);
}

// In each run, parameters and activations have 16 bits, or gradients are reduced in 16 bits, or both. With 16-bit
// parameters, the optimizer has f32 masters and f32 moments, or no masters and bf16 moments (OptimizerStates::bf16).
// The moments may also have 8 bits, with any type of parameters.
TEST(Engine, NarrowTypesGiveThePlainRun) {
  struct Types {
    DType dtype;
    std::optional<DType> reduced;
    OptimizerStates states = OptimizerStates::fp32;
  };
  using enum OptimizerStates;
  constexpr Types kTypes[] = {{DType::bf16, {}},         {DType::f16, {}},           {DType::bf16, DType::f32},
                              {DType::f16, DType::f32},  {DType::bf16, DType::bf16}, {DType::f16, DType::bf16},
                              {DType::f32, DType::bf16}, {DType::bf16, {}, bf16},    {DType::bf16, DType::f32, bf16},
                              {DType::f32, {}, q8},      {DType::bf16, {}, q8},      {DType::f16, DType::f32, q8}};
  size_t first = 0;
  for (const auto& [dtype, reduced, states] : kTypes) {
    for (const int num_micro_batches : {kMicroBatches, 1}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " reduced in " + (reduced ? name_of(*reduced) : "its own type") +
                   " after " + std::to_string(num_micro_batches) + " micro-batches" +
                   (states == bf16 ? ", bf16 states"
                    : states == q8 ? ", 8-bit states"
                                   : ""));
      EngineOptions options;
      options.dtype = dtype;
      options.optimizer_states = states;
      options.sharding.reduce_dtype = reduced;
      check(some_cases(37, first), options, num_micro_batches, first % 2 == 0);
      ++first;
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Engine, ProductsIn8BitsGiveThePlainRun) {
  ThreadPool pool(1);
  if (!make_kernels(*make_test_device(pool))->refusal_of_float8().empty()) return;
  EngineOptions options;
  options.dtype = DType::bf16;
  options.float8 = true;
  check(some_cases(19, 1), options, kMicroBatches);
  check(some_cases(19, 2), options, 1, false, "qwen3");
  check(some_cases(29, 3), options, 1, true, "bloom", {"h.0.*", "*.bias"});
  options.optimizer_states = OptimizerStates::bf16;
  check(some_cases(29, 4), options, kMicroBatches, false, "qwen3", {}, AdapterOptions{.rank = 3, .dropout = 0.2});
  options.optimizer_states = OptimizerStates::q8;
  check(some_cases(31, 5), options, 1, true, "qwen3", {}, AdapterOptions{.rank = 3}, Quantization{});
}

// If the loss or the gradients of any rank contain NaN or infinity, all ranks skip the update: parameters and moments
// do not change, and the next step gives the same bits as without the skipped step.
TEST(Engine, NonFiniteValuesUpdateNothing) {
  ThreadPool pool(1);
  World& world = test_world();
  const auto device = make_test_device(pool), host = make_cpu_device(pool);
  const auto communicator = world.make_communicator(*device);
  const ModelConfig config = small_config("bloom");
  int turn = 0;
  for (const Case& test : some_cases(13, 2)) {
    EngineOptions options;
    options.dtype = std::array{DType::f32, DType::bf16, DType::f16}[static_cast<size_t>(turn % 3)];
    options.optimizer_states = turn % 6 == 4   ? OptimizerStates::bf16
                               : turn % 6 == 3 ? OptimizerStates::q8
                                               : OptimizerStates::fp32;
    options.max_grad_norm = turn++ % 2 ? 0.5 : 0;
    options.sharding = test.options;
    options.recomputation = test.recomputation;
    SCOPED_TRACE(test.name + " " + name_of(options.dtype));
    const int micro_batches = turn % 4 ? 1 : kMicroBatches;
    const auto make = [&] {
      auto engine =
          std::make_unique<Engine>(EnginePlace{*device, *host, *communicator, ranks_per_node()}, config, options);
      engine->prepare(work_of(micro_batches));
      engine->states().initialize(5);
      return engine;
    };
    const auto engine = make(), other = make();
    const double loss_scale = options.dtype == DType::f16 ? 1024 : 1;
    const auto step = [&](Engine& of, int number, double scale) {
      const auto window = window_of(number, world.rank(), world.size(), micro_batches);
      return of.train_step(window, kLearningRate, scale);
    };
    EXPECT_EQ(engine->states().find_non_finite_unit(), std::nullopt);
    EXPECT_FALSE(step(*engine, 0, loss_scale).skipped);
    EXPECT_TRUE(step(*engine, 1, INFINITY).skipped);  // the loss is finite, but no rank has finite gradients
    auto without_targets = window_of(1, world.rank(), world.size(), micro_batches);
    for (PackedBatch& batch : without_targets) {
      std::fill(batch.labels.begin(), batch.labels.end(), -100);
      batch.num_targets = 0;
    }
    EXPECT_TRUE(engine->train_step(without_targets, kLearningRate, loss_scale).skipped);
    EXPECT_FALSE(step(*engine, 1, loss_scale).skipped);
    for (int number = 0; number < 2; ++number) EXPECT_FALSE(step(*other, number, loss_scale).skipped);
    const States sound = all_states(*engine, *communicator);
    EXPECT_EQ(sound, all_states(*other, *communicator));
    EXPECT_EQ(engine->num_updates(), 2);

    // The last rank loads a non-finite parameter, which makes activations, loss or gradients non-finite.
    const int64_t unit = config.num_layers;
    const ParameterSpec& spec = engine->model().unit(unit).table().specs().back();
    const auto element = static_cast<size_t>(spec.offset + spec.shape.num_elems() - 1);
    for (const float wrong : {NAN, INFINITY}) {
      engine->states().load([&](StateKind kind, int64_t u, ElemRange range, View to) {
        std::vector<float> values = sound.at({u, static_cast<int>(kind)});
        const bool is_last = world.rank() + 1 == world.size();
        if (u == unit && kind == StateKind::parameters && is_last) values[element] = wrong;
        from_floats(values.data() + range.begin * floats_of(to.dtype), to);
      });
      EXPECT_EQ(engine->states().find_non_finite_unit(), unit);
      const StepResult result = step(*engine, 2, loss_scale);
      EXPECT_TRUE(result.skipped);
      EXPECT_FALSE(std::isfinite(result.loss()) && std::isfinite(result.gradient_norm));
      EXPECT_EQ(engine->num_updates(), 2);
      int64_t num_changed = 0;
      for (const auto& [key, values] : all_states(*engine, *communicator)) {
        for (size_t i = 0; i < values.size(); ++i) num_changed += values[i] != sound.at(key)[i];
      }
      EXPECT_EQ(num_changed, 1);  // the loaded non-finite value
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Engine, ARunRepeatsBitForBit) {
  Rig rig;
  EngineOptions options;
  options.sharding.strategy = ShardingStrategy::full_shard;
  options.sharding.offload = {.optimizer = Tier::host, .gradients = Tier::host};
  const ModelConfig config = small_config("gpt");
  const Outcome first = rig.sharded(config, options, kMicroBatches, ranks_per_node());
  const Outcome again = rig.sharded(config, options, kMicroBatches, ranks_per_node());
  EXPECT_TRUE(same_bits(first, again));
  expect_close(rig.plain(config, options, kMicroBatches), first, kSinglePrecision);
}

// Steps 2 and 3 repeat the batches of steps 0 and 1. On a GPU, the blocks run as CUDA graphs in these repeated batches.
// Other devices use no graphs.
TEST(Engine, GraphsChangeNoBit) {
  ThreadPool pool(1);
  World& world = test_world();
  const auto device = make_test_device(pool);
  const auto host = test_uses_cuda() ? make_pinned_host_device(pool) : make_cpu_device(pool);
  const auto communicator = world.make_communicator(*device);
  EngineOptions options;
  options.dtype = DType::bf16;
  const auto run = [&](const ModelConfig& config) {
    Engine engine({*device, *host, *communicator, ranks_per_node()}, config, options);
    engine.prepare(work_of(kMicroBatches));
    engine.states().initialize(5);
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      const auto window = window_of(step % 2, world.rank(), world.size(), kMicroBatches);
      losses.push_back(engine.train_step(window, kLearningRate).loss());
    }
    EXPECT_EQ(probe(engine).num_graph_launches() > 0, options.cuda_graphs && test_uses_cuda());
    return std::pair(losses, all_states(engine, *communicator));
  };
  for (const ShardingStrategy strategy : {ShardingStrategy::no_shard, ShardingStrategy::full_shard}) {
    options.sharding.strategy = strategy;
    for (const Recomputation& recomputation :
         {Recomputation{}, Recomputation{.blocks = 2}, Recomputation{.blocks = kAllBlocks},
          Recomputation{.blocks = 1, .mlp = kAllBlocks, .attention = 1}}) {
      options.recomputation = recomputation;
      for (const double dropout : {0.0, 0.1}) {
        ModelConfig config = small_config("bloom");
        config.hidden_dropout = config.attention_dropout = dropout;
        options.cuda_graphs = true;
        const auto with_graphs = run(config);
        options.cuda_graphs = false;
        EXPECT_EQ(with_graphs, run(config));
      }
    }
  }
}

// With one micro-batch per step, the tiers of optimizer states, gradients and parameters do not change a bit of the
// results.
TEST(Engine, TiersChangeNoBit) {
  constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::file};
  std::vector<Offload> all;
  for (const Tier optimizer : kTiers) {
    for (const Tier gradients : kTiers) {
      if (optimizer == Tier::device && gradients != Tier::device) continue;
      for (const Tier parameters : kTiers) all.push_back({optimizer, gradients, parameters});
    }
  }
  ThreadPool pool(1);
  World& world = test_world();
  const auto device = make_test_device(pool);
  const auto host = make_cpu_device(pool);
  const auto communicator = world.make_communicator(*device);
  using enum OptimizerStates;
  for (const auto& [dtype, states] :
       {std::pair{DType::f32, fp32}, std::pair{DType::bf16, fp32}, std::pair{DType::f16, fp32},
        std::pair{DType::bf16, bf16}, std::pair{DType::f32, q8}, std::pair{DType::bf16, q8}}) {
    std::optional<std::pair<std::vector<double>, States>> expected;
    for (const Offload& offload : all) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " optimizer:" + name_of(offload.optimizer) +
                   " gradients:" + name_of(offload.gradients) + " parameters:" + name_of(offload.parameters));
      EngineOptions options;
      options.dtype = dtype;
      options.optimizer_states = states;
      options.sharding.strategy = ShardingStrategy::full_shard;
      options.sharding.offload = offload;
      options.sharding.file_folder = testing::TempDir();
      options.sharding.piece_elems = 1000;
      Engine engine({*device, *host, *communicator, ranks_per_node()}, small_config("bloom"), options);
      engine.prepare(work_of(1));
      engine.states().initialize(5);
      std::vector<double> numbers;
      for (int step = 0; step < 3; ++step) {
        const StepResult result = engine.train_step(window_of(step, world.rank(), world.size(), 1), kLearningRate, 16);
        numbers.insert(numbers.end(), {result.loss(), result.gradient_norm});
      }
      const std::pair outcome(numbers, all_states(engine, *communicator));
      if (!expected) expected = outcome;
      EXPECT_EQ(outcome.first, expected->first);
      EXPECT_TRUE(outcome.second == expected->second);
    }
  }
}

// sync_module_states: only rank 0 reads parameters, all ranks get the same values, and the plan includes the memory for
// their transfer.
TEST(Engine, RankZeroReadsForAll) {
  constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
  // Small integers, which every type holds exactly.
  const auto value_of = [](int64_t unit, int64_t i) { return static_cast<float>(unit + i % 100); };
  ThreadPool pool(1);
  World& world = test_world();
  for (const auto& [strategy, optimizer, parameters, dtype] :
       {std::tuple{ShardingStrategy::no_shard, D, D, DType::f32}, std::tuple{ShardingStrategy::zero1, F, D, DType::f32},
        std::tuple{ShardingStrategy::full_shard, D, D, DType::bf16},
        std::tuple{ShardingStrategy::full_shard, H, H, DType::f32},
        std::tuple{ShardingStrategy::full_shard, H, D, DType::f16},
        std::tuple{ShardingStrategy::hybrid_shard, F, F, DType::bf16}}) {
    SCOPED_TRACE(row_of(strategy).name);
    const auto device = make_test_device(pool);
    const auto host = test_uses_cuda() ? make_pinned_host_device(pool) : make_cpu_device(pool);
    const auto communicator = world.make_communicator(*device);
    EngineOptions options;
    options.dtype = dtype;
    options.sharding.strategy = strategy;
    options.sharding.offload = {.optimizer = optimizer, .parameters = parameters};
    options.sharding.file_folder = testing::TempDir();
    options.sharding.sync_module_states = true;
    const ModelConfig config = small_config("bloom");
    Engine engine({*device, *host, *communicator, ranks_per_node()}, config, options);
    engine.prepare(work_of(1));
    const auto read = [&](Section, int64_t unit, ElemRange range, View to) {
      EXPECT_EQ(world.rank(), 0);
      std::vector<float> values;
      for (int64_t i = range.begin; i < range.end; ++i) values.push_back(value_of(unit, i));
      convert(values.data(), DType::f32, to.data, to.dtype, values.size());
    };
    engine.states().load_parameters(read, true);
    const Plan plan = plan_run(config, options, work_of(1),
                               {.world_size = world.size(),
                                .rank = world.rank(),
                                .ranks_per_node = ranks_per_node(),
                                .device = device->kind()});
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      if (category == Category::staging && !plan_knows_staging(*device)) continue;
      EXPECT_EQ(device->ledger().peak(Phase::load, category), plan.device.peak(Phase::load, category))
          << name_of(category);
      EXPECT_EQ(host->ledger().peak(Phase::load, category), plan.host.peak(Phase::load, category)) << name_of(category);
    }
    for (const auto& [key, values] : all_states(engine, *communicator)) {
      if (key.second != static_cast<int>(StateKind::parameters)) continue;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], value_of(key.first, static_cast<int64_t>(i))) << key.first << " " << i;
      }
    }
  }
}

// The ranges that the ranks save cover every element exactly once, and so do ranges of blocks of 256 values. A block
// may end after the last value.
TEST(Engine, SavedRangesCoverEveryElementOnce) {
  for (const int world_size : {1, 2, 3, 4, 6}) {
    for (const auto strategy : {ShardingStrategy::no_shard, ShardingStrategy::zero1, ShardingStrategy::hybrid_shard}) {
      for (const int64_t elems : {1, 64, 65, 1000, 4096}) {
        for (const int64_t values : {int64_t{1}, kQuantizedValues}) {
          int64_t total = 0;
          std::vector<ElemRange> ranges;
          for (int rank = 0; rank < world_size; ++rank) {
            ShardOptions sharding;
            sharding.strategy = strategy;
            const ShardPlan plan(sharding, world_size, rank, world_size % 2 ? 1 : 2);
            const int64_t alignment = std::max(values, ParameterTable::kAlignment);
            const UnitShards cut = plan.cut(elems, alignment);
            EXPECT_EQ(cut.shard_elems % alignment, 0);
            const ElemRange range = plan.saved(cut.in_elements_of(values));
            for (const ElemRange& other : ranges) EXPECT_TRUE(range.end <= other.begin || other.end <= range.begin);
            if (range.size() > 0) ranges.push_back(range);
            total += range.size();
          }
          EXPECT_EQ(total, (elems + values - 1) / values);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
