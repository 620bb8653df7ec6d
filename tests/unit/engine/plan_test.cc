#include "tessera/engine/plan.h"

#include <gtest/gtest.h>

#include <random>

#include "small_model.h"

namespace tessera {
namespace {

// An engine on the CPU runs the work that the plan describes. The planned peaks equal the peaks in the ledgers of this
// engine to the byte, in every category and phase.
TEST(Plan, EqualsTheLedger) {
  int turn = 0;
  const Recomputation none, one{.blocks = 1}, all{.blocks = kAllBlocks}, parts{.mlp = kAllBlocks, .attention = 1},
      mixed{.blocks = 1, .mlp = 1, .attention = 2};
  for (const auto& [architecture, dtype, recomputation, tied_head] :
       {std::tuple{"bloom", DType::f32, none, true}, std::tuple{"bloom", DType::f32, all, true},
        std::tuple{"gpt", DType::f32, none, true}, std::tuple{"gpt", DType::f32, one, true},
        std::tuple{"bloom", DType::bf16, one, true}, std::tuple{"gpt", DType::f16, all, true},
        std::tuple{"bloom", DType::f32, none, false}, std::tuple{"gpt", DType::bf16, all, false},
        std::tuple{"llama", DType::f32, one, true}, std::tuple{"qwen3", DType::bf16, one, false},
        std::tuple{"qwen3", DType::f32, none, false}, std::tuple{"bloom", DType::f32, parts, true},
        std::tuple{"gpt", DType::bf16, parts, false}, std::tuple{"llama", DType::f32, parts, true},
        std::tuple{"qwen3", DType::f16, parts, false}, std::tuple{"bloom", DType::bf16, mixed, true},
        std::tuple{"gpt", DType::f32, mixed, true}, std::tuple{"qwen3", DType::f32, mixed, true}}) {
    ModelConfig config = small_config(architecture, 0.1);
    config.tied_head = tied_head;
    EngineOptions options;
    if (!tied_head) options.frozen = {"word_embeddings*", "*.0.*", "*norm*"};
    options.dtype = dtype;
    options.recomputation = recomputation;
    options.optimizer_states = dtype == DType::bf16 && recomputation != all ? OptimizerStates::bf16
                               : turn % 4 == 1 || turn % 4 == 2             ? OptimizerStates::q8
                                                                            : OptimizerStates::fp32;
    // In every second case, some units are offloaded. A unit may have its arrays on different tiers.
    constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
    constexpr Offload kOffloads[] = {{H, H, H}, {F, F, F}, {H, D, D}, {F, H, D}, {D, D, F}};
    if (turn % 2) options.sharding.offload = kOffloads[turn / 2 % 5];
    using enum OffloadedPart::Of;
    if (turn % 4 == 1) {
      options.sharding.offload.part_of_optimizer = {blocks, 1 + turn / 4 % 2};
      options.sharding.offload.part_of_gradients = {blocks, 1};
    }
    if (turn % 8 == 5) options.sharding.offload.part_of_parameters = {percent, 60};
    options.sharding.device_update_percent = turn % 3 * 50;
    options.sharding.file_folder = testing::TempDir();
    ++turn;
    const auto batch = make_batch(4, {9, 5, 7});
    const BatchBounds bounds{21, 3, batch.num_targets};
    const WorkBounds work{bounds, bounds, {21, 3, 0}, 4};
    const Plan plan = plan_run(config, options, work, {});

    ThreadPool pool(1);
    const auto device = make_cpu_device(pool), host = make_cpu_device(pool);
    const auto alone = make_self_communicator();
    Engine engine({*device, *host, *alone}, config, options);
    const auto enter = [&](Phase phase) {
      device->ledger().enter(phase);
      host->ledger().enter(phase);
    };
    engine.prepare(work);
    engine.states().initialize(1);
    enter(Phase::resume);
    engine.states().load([](StateKind, int64_t, ElemRange, View to) { std::fill_n(to.data, to.bytes(), std::byte{}); });
    enter(Phase::step);
    engine.train_step({&batch, 1}, 1e-3);
    enter(Phase::evaluation);
    engine.evaluate(batch);
    engine.generate(std::vector<std::vector<int32_t>>{{1, 2, 3}, {4}}, {.max_new_tokens = 4, .eos_id = 2});
    enter(Phase::save);
    engine.states().save([](StateKind, int64_t, ElemRange, View) {});
    engine.states().save_parameters([](Section, int64_t, ElemRange, View) {});
    for (int p = 0; p < kNumPhases; ++p) {
      for (int c = 0; c < kNumCategories; ++c) {
        const auto phase = static_cast<Phase>(p);
        const auto category = static_cast<Category>(c);
        EXPECT_EQ(plan.device.peak(phase, category), device->ledger().peak(phase, category))
            << architecture << " " << name_of(dtype) << " " << name_of(phase) << " " << name_of(category);
        EXPECT_EQ(plan.host.peak(phase, category), host->ledger().peak(phase, category))
            << architecture << " " << name_of(dtype) << " " << name_of(phase) << " " << name_of(category);
      }
    }
    EXPECT_EQ(plan.file_bytes, engine.file_bytes());
  }
}

// A plan is never too optimistic: configurations that are drawn at random run on devices that hold exactly the planned
// bytes, and run out of memory with one byte less.
TEST(Plan, DrawnConfigurationsRunInExactlyTheirMemory) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int turn = 0; turn < 60; ++turn) {
    constexpr const char* kArchitectures[] = {"bloom", "gpt", "llama", "qwen3"};
    constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
    ModelConfig config = small_config(kArchitectures[draw(0, 3)], draw(0, 1) ? 0.1 : 0);
    config.num_layers = draw(1, 4);
    config.tied_head = draw(0, 1);
    const int64_t L = config.num_layers;
    EngineOptions options;
    options.dtype = kTypes[draw(0, 2)];
    options.recomputation = {.blocks = draw(0, L), .mlp = draw(0, L), .attention = draw(0, L)};
    if (draw(0, 2) == 0) options.optimizer_states = OptimizerStates::q8;
    if (draw(0, 3) == 0) options.frozen = {"*.0.*"};
    constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::file};
    Offload& offload = options.sharding.offload;
    const auto part = [&]() -> OffloadedPart {
      return draw(0, 1) ? OffloadedPart{OffloadedPart::Of::blocks, draw(1, L)} : OffloadedPart{};
    };
    offload.optimizer = kTiers[draw(0, 2)];
    offload.part_of_optimizer = part();
    if (offload.optimizer != Tier::device && draw(0, 1)) {
      offload.gradients = kTiers[draw(1, 2)];
      offload.part_of_gradients = offload.part_of_optimizer;
    }
    if (draw(0, 1)) {
      options.sharding.strategy = ShardingStrategy::full_shard;
      offload.parameters = kTiers[draw(0, 2)];
      offload.part_of_parameters = part();
    }
    options.sharding.file_folder = testing::TempDir();
    const int64_t num_micro_batches = draw(1, 3);
    std::vector<PackedBatch> window;
    BatchBounds bounds{};
    for (int64_t i = 0; i < num_micro_batches; ++i) {
      std::vector<int32_t> lengths(static_cast<size_t>(draw(1, 4)));
      int64_t tokens = 0;
      for (int32_t& length : lengths) tokens += length = static_cast<int32_t>(draw(2, 12));
      window.push_back(make_batch(static_cast<uint64_t>(turn), lengths));
      bounds.num_tokens = std::max(bounds.num_tokens, tokens);
      bounds.num_sequences = std::max<int64_t>(bounds.num_sequences, std::ssize(lengths));
      bounds.num_targets = std::max<int64_t>(bounds.num_targets, window.back().num_targets);
    }
    const WorkBounds work{bounds, bounds, {}, 0, num_micro_batches};
    const Plan plan = plan_run(config, options, work, {});
    const auto run_within = [&](int64_t device_bytes, int64_t host_bytes) {
      ThreadPool pool(1);
      const auto device = make_cpu_device(pool), host = make_cpu_device(pool);
      device->limit_to(device_bytes);
      host->limit_to(host_bytes);
      const auto alone = make_self_communicator();
      Engine engine({*device, *host, *alone}, config, options);
      engine.prepare(work);
      engine.states().initialize(1);
      for (int step = 0; step < 2; ++step) engine.train_step(window, 1e-3);
      engine.evaluate(window.front());
      engine.states().save([](StateKind, int64_t, ElemRange, View) {});
      engine.states().load(
          [](StateKind, int64_t, ElemRange, View to) { std::fill_n(to.data, to.bytes(), std::byte{}); });
    };
    const int64_t device_bytes = plan.device.peak_total(), host_bytes = plan.host.peak_total();
    EXPECT_NO_THROW(run_within(device_bytes, host_bytes)) << turn;
    EXPECT_THROW(run_within(device_bytes - 1, host_bytes), OutOfMemoryError) << turn;
    if (host_bytes > 0) {
      EXPECT_THROW(run_within(device_bytes, host_bytes - 1), OutOfMemoryError) << turn;
    }
  }
}

// On a GPU, attention's backward needs a workspace. It usually takes the memory of the MLP's kept array. If backward
// computes this array again, the workspace needs memory of its own. The counting kernels check its size.
TEST(Plan, RecomputedPartsLeaveAWorkspaceForAttentionOnGpus) {
  for (const char* architecture : {"bloom", "gpt", "llama", "qwen3"}) {
    for (const Recomputation& recomputation :
         {Recomputation{}, Recomputation{.mlp = kAllBlocks}, Recomputation{.attention = kAllBlocks},
          Recomputation{.blocks = 1, .mlp = 1, .attention = 2}}) {
      EngineOptions options;
      options.dtype = DType::bf16;
      options.recomputation = recomputation;
      const BatchBounds batch{64, 2, 8};
      const Plan plan =
          plan_run(small_config(architecture, 0), options, {batch, {}, {}, 0}, {.device = DeviceKind::cuda});
      const int64_t without = [&] {
        EngineOptions plain = options;
        plain.recomputation = {};
        return plan_run(small_config(architecture, 0), plain, {batch, {}, {}, 0}, {.device = DeviceKind::cuda})
            .device.peak_total(Phase::step);
      }();
      EXPECT_LE(plan.device.peak_total(Phase::step), without) << architecture;
    }
  }
}

// Each checkpointed block frees the memory of all values that a block keeps for its backward pass, and costs one more
// forward pass of the block. If only one block is not checkpointed, checkpointing this block frees little or nothing,
// because the backward pass always holds the values of one block.
TEST(Plan, EachCheckpointedBlockFreesItsValues) {
  for (const char* architecture : {"bloom", "llama"}) {
    for (const int64_t frozen : {0, 2}) {
      ModelConfig config = small_config(architecture, 0);
      config.num_layers = 6;
      const int64_t blocks = config.num_layers - frozen;  // blocks with a backward pass
      const auto plan_with = [&](int64_t checkpointed) {
        EngineOptions options;
        options.recomputation = {.blocks = checkpointed};
        if (frozen > 0) options.frozen = {"*embed*", "*.0.*", "*.1.*"};
        return plan_run(config, options, {{64, 2, 8}, {}, {}, 0}, {});
      };
      const auto bytes = [](const Plan& plan) { return plan.device.peak(Phase::step, Category::activations); };
      const Plan none = plan_with(0), one = plan_with(1), all = plan_with(kAllBlocks);
      const int64_t values = bytes(none) - bytes(one), forward = one.micro_batch_flops - none.micro_batch_flops;
      EXPECT_GT(values, 64 * 12 * 4 * 4);  // four f32 arrays of 64 tokens and 12 channels
      for (int64_t n = 2; n < blocks; ++n) {
        const Plan plan = plan_with(n);
        EXPECT_EQ(bytes(plan), bytes(none) - n * values) << architecture << " " << n;
        EXPECT_EQ(plan.micro_batch_flops, none.micro_batch_flops + n * forward) << architecture << " " << n;
      }
      EXPECT_LE(bytes(all), bytes(plan_with(blocks - 1)));
      EXPECT_EQ(bytes(all), bytes(plan_with(blocks)));
      EXPECT_EQ(all.micro_batch_flops, none.micro_batch_flops + blocks * forward);
      EXPECT_EQ(all.device.peak_total(Phase::step) - bytes(all), none.device.peak_total(Phase::step) - bytes(none));
      EXPECT_THROW(plan_with(config.num_layers + 1), UsageError);
    }
  }
}

// A block that recomputes a part frees the arrays of this part, and costs one more product or one more forward pass of
// attention. As with complete blocks, the last block that recomputes a part frees little or nothing.
TEST(Plan, EachRecomputedPartFreesItsArrays) {
  for (const auto& [architecture, frozen] :
       {std::pair{"bloom", int64_t{0}}, {"gpt", int64_t{0}}, {"llama", int64_t{2}}, {"qwen3", int64_t{0}}}) {
    SCOPED_TRACE(architecture);
    ModelConfig config = small_config(architecture, 0);
    config.num_layers = 6;
    config.sliding_layers = {};
    config.sliding_window = 0;
    const int64_t blocks = config.num_layers - frozen, N = 64, B = 2;
    const auto plan_with = [&](const Recomputation& recomputation) {
      EngineOptions options;
      options.recomputation = recomputation;
      if (config.architecture == "llama") options.frozen = {"*embed*", "*.0.*", "*.1.*"};
      return plan_run(config, options, {{N, B, 8}, {}, {}, 0}, {});
    };
    const auto bytes = [](const Plan& plan) { return plan.device.peak(Phase::step, Category::activations); };
    const auto array = [&](int64_t channels) { return round_up(4 * N * channels, Device::kAlignment); };
    const bool gated = config.architecture == "llama" || config.architecture == "qwen3";
    const int64_t products = (gated ? 2 : 1) * config.ff_dim, heads = config.attention_channels();
    const int64_t mlp = array(products), attention = array(heads) + array(config.num_heads);
    const int64_t mlp_flops = 2 * N * config.hidden_size * products,
                  attention_flops = B * 2 * heads * (N / B) * (N / B + 1);
    const Plan none = plan_with({}), one = plan_with({.blocks = 1});
    const int64_t block = bytes(none) - bytes(one), block_flops = one.micro_batch_flops - none.micro_batch_flops;
    const auto expect = [&](const Recomputation& recomputation, int64_t freed, int64_t flops) {
      const Plan plan = plan_with(recomputation);
      EXPECT_EQ(bytes(plan), bytes(none) - freed);
      EXPECT_EQ(plan.micro_batch_flops, none.micro_batch_flops + flops);
      EXPECT_EQ(plan.device.peak_total(Phase::step) - bytes(plan), none.device.peak_total(Phase::step) - bytes(none));
    };
    for (int64_t n = 1; n < blocks; ++n) {
      expect({.mlp = n}, n * mlp, n * mlp_flops);
      expect({.attention = n}, n * attention, n * attention_flops);
      expect({.mlp = n, .attention = n}, n * (mlp + attention), n * (mlp_flops + attention_flops));
      expect({.mlp = n, .attention = 1}, n * mlp + attention, n * mlp_flops + attention_flops);
      if (n == 1) continue;
      expect({.blocks = 1, .mlp = n - 1}, block + (n - 1) * mlp, block_flops + (n - 1) * mlp_flops);
      expect({.blocks = n - 1, .attention = 1}, (n - 1) * block + attention, (n - 1) * block_flops + attention_flops);
    }
    for (const Recomputation& all : {Recomputation{.mlp = kAllBlocks}, Recomputation{.attention = kAllBlocks},
                                     Recomputation{.mlp = kAllBlocks, .attention = kAllBlocks}}) {
      const Plan plan = plan_with(all);
      EXPECT_LE(bytes(plan), bytes(none) - (blocks - 1) * ((all.mlp ? mlp : 0) + (all.attention ? attention : 0)));
      EXPECT_EQ(plan.micro_batch_flops,
                none.micro_batch_flops + blocks * ((all.mlp ? mlp_flops : 0) + (all.attention ? attention_flops : 0)));
    }
    EXPECT_EQ(bytes(plan_with({.blocks = kAllBlocks, .mlp = kAllBlocks})), bytes(plan_with({.blocks = kAllBlocks})));
    EXPECT_THROW(plan_with({.mlp = config.num_layers + 1}), UsageError);
    EXPECT_THROW(plan_with({.attention = config.num_layers + 1}), UsageError);
  }
}

// Counts the bytes per trained parameter, on one rank with one micro-batch per step: the weight, the gradient and two
// moments. A 16-bit weight with an fp32 master takes 2 more bytes, because these bytes and the weight together store
// the fp32 master. A moment of 8 bits takes 1 byte and its part of the 4 bytes of a block.
TEST(Plan, CountsTheBytesOfAParameter) {
  const ModelConfig config = small_config("bloom", 0);
  const auto bytes_of_a_parameter = [&](DType dtype, OptimizerStates states) {
    EngineOptions options;
    options.dtype = dtype;
    options.optimizer_states = states;
    const Plan plan = plan_run(config, options, {{16, 2, 16}, {}, {}, 0}, {});
    const auto device = make_counting_device();
    const Model model(config, *device);
    int64_t elems = 0, bytes = 0;
    const int64_t alignment = states == OptimizerStates::q8 ? kQuantizedValues : 1;
    for (int64_t u = 0; u < model.num_units(); ++u)
      elems += round_up(model.unit(u).table().num_elems(Section::trainable), alignment);
    for (const Category category : {Category::parameters, Category::master, Category::gradients, Category::optimizer}) {
      bytes += plan.device.peak(Phase::step, category) + plan.host.peak(Phase::step, category);
    }
    return static_cast<double>(bytes) / static_cast<double>(elems);
  };
  using enum OptimizerStates;
  EXPECT_EQ(bytes_of_a_parameter(DType::f32, fp32), 16);
  EXPECT_EQ(bytes_of_a_parameter(DType::f16, fp32), 14);
  EXPECT_EQ(bytes_of_a_parameter(DType::bf16, fp32), 14);
  EXPECT_EQ(bytes_of_a_parameter(DType::bf16, bf16), 8);
  EXPECT_EQ(bytes_of_a_parameter(DType::f32, q8), 8 + 2 * 260.0 / 256);
  EXPECT_EQ(bytes_of_a_parameter(DType::f16, q8), 6 + 2 * 260.0 / 256);
  EXPECT_EQ(bytes_of_a_parameter(DType::bf16, q8), 6 + 2 * 260.0 / 256);
}

TEST(Plan, CountsTheOperationsOfADenseStep) {
  ModelConfig config;
  ASSERT_TRUE(find_known_model("bloom-560m", config));
  const int64_t T = 512, C = 1024, L = 24, V = 250880;
  const Plan plan = plan_run(config, {}, {{T, 1, T}, {}, {}, 0}, {});
  EXPECT_EQ(plan.num_parameters, 559214592);
  // T tokens, C channels, L blocks, V tokens in the vocabulary. A weight costs 6 FLOPs per token. The forward pass of a
  // block's attention costs 2·C·T(T+1) FLOPs. The forward and the backward pass of attention together cost 3.5 times as
  // much as its forward pass.
  EXPECT_EQ(plan.micro_batch_flops, 6 * T * (12 * L * C * C + V * C) + 7 * L * C * T * (T + 1));
}

// Frozen weights need no product for their gradient. Blocks before the first block that trains have only a forward
// pass.
TEST(Plan, CountsTheOperationsWithFrozenParameters) {
  ModelConfig config;
  ASSERT_TRUE(find_known_model("bloom-560m", config));
  EngineOptions options;
  options.frozen = {"word_embeddings*", "h.?.*", "h.1?.*"};
  const int64_t T = 512, C = 1024, V = 250880, trained = 4, only_forward = 20;
  const Plan plan = plan_run(config, options, {{T, 1, T}, {}, {}, 0}, {});
  EXPECT_EQ(plan.num_parameters, 559214592);
  EXPECT_EQ(plan.num_trainable_parameters, trained * (12 * C * C + 13 * C) + 2 * C);
  EXPECT_EQ(plan.micro_batch_flops, T * (trained * 6 * 12 * C * C + only_forward * 2 * 12 * C * C + 4 * V * C) +
                                        (7 * trained + 2 * only_forward) * C * T * (T + 1));
}

// Checks the planned number of sent bytes: with a formula for most strategies, and by the part within nodes for
// full_shard and hybrid_shard. P is the number of elements of all units, padded for R ranks. The formulas hold for
// every step except the first step of a run.
constexpr int R = 4;

void count_bytes_of_a_step(const ModelConfig& config) {
  using enum ShardingStrategy;
  const auto sent = [&](ShardingStrategy strategy, int64_t micro_batches, int ranks_per_node = R,
                        DType dtype = DType::f32) {
    EngineOptions options;
    options.dtype = dtype;
    options.sharding.strategy = strategy;
    const PlannedRank rank{.world_size = R, .rank = 1, .ranks_per_node = ranks_per_node};
    return plan_run(config, options, {{16, 2, 16}, {}, {}, 0, micro_batches}, rank);
  };
  const auto device = make_counting_device();
  const Model model(config, *device);
  int64_t P = 0;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    P += ShardPlan({}, R, 0, R).cut(model.unit(u).table().num_elems(Section::trainable)).padded_elems;
  }
  const int64_t all = 4 * P * (R - 1) / R;  // bytes that one rank sends to gather or reduce all units once
  for (const int64_t accum : {1, 3}) {
    EXPECT_EQ(sent(no_shard, accum).step_bytes_sent, 2 * all);
    EXPECT_EQ(sent(zero1, accum).step_bytes_sent, 2 * all);
    EXPECT_EQ(sent(zero2, accum).step_bytes_sent, (accum + 1) * all);
    EXPECT_EQ(sent(shard_grad_op, accum).step_bytes_sent, (accum + 1) * all);
    EXPECT_EQ(sent(full_shard, accum).step_bytes_sent_within_nodes, sent(full_shard, accum).step_bytes_sent);
    EXPECT_EQ(sent(full_shard, accum, 2).step_bytes_sent_within_nodes, 0);
    const Plan hybrid = sent(hybrid_shard, accum, 2);
    EXPECT_LT(hybrid.step_bytes_sent_within_nodes, hybrid.step_bytes_sent);
    EXPECT_GT(hybrid.step_bytes_sent_within_nodes, hybrid.step_bytes_sent / 2);
    // With a 16-bit type, a rank sends half as many bytes as with fp32. The exception: gradients that are summed over
    // micro-batches before they are sent. They are sent in fp32.
    EXPECT_EQ(sent(zero2, accum, R, DType::bf16).step_bytes_sent, (accum + 1) * all / 2);
    EXPECT_EQ(sent(no_shard, accum, R, DType::f16).step_bytes_sent, accum == 1 ? all : 2 * all);
  }
}

TEST(Plan, CountsTheBytesOfAStep) {
  count_bytes_of_a_step(small_config("bloom", 0));
  count_bytes_of_a_step(untied(small_config("bloom", 0)));
}

// If blocks are gathered in 8 bits instead of bf16, each gather sends one byte less for each of their parameters. In
// return, a rank keeps a byte for each parameter of its shard. The rest is small: scales, and what has no codes.
TEST(Plan, CountsGathersIn8Bits) {
  ModelConfig config = small_config("bloom", 0);
  config.hidden_size = 64, config.num_heads = 4, config.ff_dim = 256, config.num_layers = 4;
  EngineOptions options;
  options.dtype = DType::bf16, options.float8 = true;
  options.sharding.strategy = ShardingStrategy::full_shard;
  const auto planned = [&](bool in_8_bits) {
    options.sharding.gather_float8 = in_8_bits;
    return plan_run(config, options, {{16, 2, 16}, {}, {}, 0}, {.world_size = R, .rank = 1, .ranks_per_node = R});
  };
  const Plan wide = planned(false), narrow = planned(true);
  const int64_t elems = 4 * (12 * 64 * 64 + 13 * 64), sent = elems * (R - 1) / R;  // of all blocks
  const int64_t saved = wide.step_bytes_sent - narrow.step_bytes_sent;
  EXPECT_GT(saved, sent * 7 / 5);  // forward, and backward of all blocks but those that are still gathered
  EXPECT_LT(saved, 2 * sent);
  const int64_t kept =
      narrow.device.peak(Phase::step, Category::parameters) - wide.device.peak(Phase::step, Category::parameters);
  EXPECT_GE(kept, elems / R);
  EXPECT_LT(kept, elems / R * 6 / 5);
  EXPECT_EQ(narrow.device.peak(Phase::step, Category::gathered), wide.device.peak(Phase::step, Category::gathered));
  options.float8 = false;
  config.quantization = Quantization{};
  EXPECT_THROW(planned(true), UsageError);
}

// A slot is a buffer for the parameters, or for the gradients, of one complete unit. Parameters and gradients each have
// one slot for the root, one for an untied head, and one for each block in flight.
void check_slots(ModelConfig config) {
  config.num_layers = 5;
  const auto device = make_counting_device();
  const Model model(config, *device);
  const auto padded = [&](int64_t unit) {
    return 4 * ShardPlan({}, R, 0, R).cut(model.unit(unit).table().num_elems(Section::trainable)).padded_elems;
  };
  for (const int limit : {1, 2, 4, 5, 9}) {
    EngineOptions options;
    options.sharding.strategy = ShardingStrategy::full_shard;
    options.sharding.max_units_in_flight = limit;
    const PlannedRank rank{.world_size = R, .rank = 1, .ranks_per_node = R};
    const Plan plan = plan_run(config, options, {{16, 2, 16}, {}, {}, 0}, rank);
    const int64_t outer = padded(0) + (config.tied_head ? 0 : padded(model.head_unit()));
    EXPECT_EQ(plan.device.peak(Phase::step, Category::gathered), 2 * (outer + std::min(limit, 5) * padded(1)));
  }
}

TEST(Plan, HoldsNoMoreUnitsThanMayBeInFlight) {
  check_slots(small_config("bloom", 0));
  check_slots(untied(small_config("bloom", 0)));
}

// In a training step, the head has one row for each of the M tokens with a target. It keeps the gradients of these rows
// (d_rows) on the activation stack. While it computes a chunk, it also keeps the chunk's rows, the normalized rows,
// their statistics and the logits. Here one chunk contains all rows. An evaluation needs no d_rows and no statistics.
TEST(Plan, ReportsTheHeadsShare) {
  const ModelConfig config = small_config("bloom", 0);
  const int64_t M = 10, C = config.hidden_size, V = config.vocab_size;
  const Plan plan = plan_run(config, {}, {{16, 2, M}, {16, 2, M}, {}, 0}, {});
  const auto rounded = [](int64_t elems) {
    return (4 * elems + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
  };
  const auto head = [&](Phase phase) { return plan.head_bytes[static_cast<size_t>(phase)]; };
  EXPECT_EQ(head(Phase::step), 3 * rounded(M * C) + rounded(M * V) + rounded(M * 2));
  EXPECT_EQ(head(Phase::evaluation), 2 * rounded(M * C) + rounded(M * V));
  EXPECT_EQ(head(Phase::save), 0);
}

}  // namespace
}  // namespace tessera
