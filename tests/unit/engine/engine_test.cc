#include "tessera/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "small_model.h"
#include "tessera/engine/plan.h"

namespace tessera {
namespace {

constexpr BatchBounds kBounds{64, 8, 64};

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : pool_(2), device_(make_cpu_device(pool_)), host_(make_cpu_device(pool_)), alone_(make_self_communicator()) {}
  std::unique_ptr<Engine> make(const ModelConfig& config, const EngineOptions& options, int64_t micro_batches = 1) {
    auto engine = std::make_unique<Engine>(EnginePlace{*device_, *host_, *alone_}, config, options);
    engine->prepare({kBounds, kBounds, kBounds, 8, micro_batches});
    engine->initialize_parameters(7);
    return engine;
  }
  static std::vector<std::byte> bytes_of(const View& view) { return {view.data, view.data + view.bytes()}; }
  static bool same_parameters(const Engine& a, const Engine& b) {
    for (int64_t u = 0; u < a.model().num_units(); ++u) {
      if (bytes_of(a.parameters(u).flat) != bytes_of(b.parameters(u).flat)) return false;
    }
    return true;
  }

  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> alone_;
};

// Central differences in double precision, through the whole model with every kind of block and dropout on.
TEST_F(EngineTest, GradientsAreTheLosssSlopes) {
  for (const ModelConfig& config : {small_config("bloom"), small_config("bloom", 0.2), small_config("bloom", 0.2, true),
                                    small_config("gpt"), small_config("gpt", 0.2)}) {
    EngineOptions options;
    options.dtype = DType::f64;
    const auto engine = make(config, options);
    const PackedBatch batch = make_batch(3, {5, 1, 9, 2});
    const auto loss = [&] { return engine->accumulate_gradients({&batch, 1}).loss(); };
    loss();
    std::vector<std::vector<double>> gradients;
    for (int64_t u = 0; u < engine->model().num_units(); ++u) {
      const View g = engine->gradients(u).flat;
      gradients.emplace_back(g.as<double>(), g.as<double>() + g.num_elems());
    }
    for (int64_t u = 0; u < engine->model().num_units(); ++u) {
      const ParameterViews p = engine->parameters(u);
      for (size_t i = 0; i < p.table->specs().size(); ++i) {
        const ParameterSpec& spec = p.table->specs()[i];
        for (int64_t k = 0; k < 3; ++k) {  // three elements of each tensor
          const int64_t j = spec.offset + (k * 7919) % spec.shape.num_elems();
          double& x = p.flat.as<double>()[j];
          const double kept = x, h = 1e-5;
          x = kept + h;
          const double above = loss();
          x = kept - h;
          const double below = loss();
          x = kept;
          // h² of truncation and 1e-16 / h of cancellation, on slopes of about 1. ReLU's kink is not met by this seed.
          EXPECT_NEAR(gradients[static_cast<size_t>(u)][static_cast<size_t>(j)], (above - below) / (2 * h), 1e-7)
              << config.architecture << " dropout " << config.hidden_dropout << " " << spec.name << " [" << k << "]";
        }
      }
    }
  }
}

TEST_F(EngineTest, CheckpointedBlocksGiveTheSameBits) {
  for (const ModelConfig& config : {small_config("bloom", 0.1), small_config("gpt", 0.1)}) {
    EngineOptions options;
    options.max_grad_norm = 1;
    const auto plain = make(config, options, 2);
    options.checkpoint_blocks = true;
    const auto checkpointed = make(config, options, 2);
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<PackedBatch> window{make_batch(step, {5, 4}), make_batch(step + 10, {7})};
      const StepResult a = plain->train_step(window, 1e-2), b = checkpointed->train_step(window, 1e-2);
      EXPECT_EQ(a.loss_sum, b.loss_sum);
      EXPECT_EQ(a.gradient_norm, b.gradient_norm);
    }
    EXPECT_TRUE(same_parameters(*plain, *checkpointed));
  }
}

// The window's loss is the mean over all its targets, however it is cut into micro-batches, dropout included.
TEST_F(EngineTest, AccumulationEqualsOneBatch) {
  EngineOptions options;
  options.dtype = DType::f64;
  const auto whole = make(small_config("gpt", 0.1), options), parts = make(small_config("gpt", 0.1), options, 3);
  const PackedBatch all = make_batch(5, {6, 3, 8});
  std::vector<PackedBatch> window;
  for (size_t b = 0; b < 3; ++b) {
    PackedBatch part;
    const auto begin = all.starts[b], end = all.starts[b + 1];
    part.ids.assign(all.ids.begin() + begin, all.ids.begin() + end);
    part.labels.assign(all.labels.begin() + begin, all.labels.begin() + end);
    part.starts = {0, end - begin};
    for (const int32_t label : part.labels) part.num_targets += label >= 0;
    part.sequence_numbers = {static_cast<int64_t>(b)};
    window.push_back(part);
  }
  const StepResult a = whole->train_step({&all, 1}, 1e-2), b = parts->train_step(window, 1e-2);
  EXPECT_NEAR(a.loss_sum, b.loss_sum, 1e-12);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-12);
}

TEST_F(EngineTest, EmptyMicroBatchesAndStepsWithoutTargetsChangeNothing) {
  const auto engine = make(small_config("bloom"), {}, 2);
  PackedBatch without = make_batch(1, {4});
  std::fill(without.labels.begin(), without.labels.end(), -100);
  without.num_targets = 0;
  const StepResult result = engine->train_step(std::vector{without, PackedBatch{{}, {}, {0}, 0}}, 1e-2);
  EXPECT_EQ(result.loss(), 0);
  EXPECT_EQ(result.gradient_norm, 0);
  EXPECT_TRUE(same_parameters(*engine, *make(small_config("bloom"), {})));
}

TEST_F(EngineTest, LossFallsAndRunsRepeat) {
  EngineOptions options;
  options.max_grad_norm = 1;
  const auto a = make(small_config("bloom"), options), b = make(small_config("bloom"), options);
  const PackedBatch batch = make_batch(2, {9, 9});
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    last = a->train_step({&batch, 1}, 1e-2).loss();
    if (step == 0) first = last;
    EXPECT_EQ(b->train_step({&batch, 1}, 1e-2).loss(), last);
  }
  EXPECT_LT(last, 0.2 * first);
  EXPECT_TRUE(same_parameters(*a, *b));
}

// Rounding of 16-bit parameters and of what each layer leaves moves an activation by u = 2^-8 (bf16) or 2^-11 (f16) of
// its size, some 16 times in two blocks and the head and as often back: 4u with random signs. Losses and norms, which
// average over many, stay within that.
TEST_F(EngineTest, HalvesStayNearSinglePrecision) {
  for (const char* architecture : {"bloom", "gpt"}) {
    for (const auto& [dtype, u] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
      EngineOptions options;
      options.max_grad_norm = 1;
      const auto single = make(small_config(architecture, 0.1), options);
      options.dtype = dtype;
      const auto half = make(small_config(architecture, 0.1), options);
      const double loss_scale = dtype == DType::f16 ? 1024 : 1;
      double first = 0, last = 0;
      for (int step = 0; step < 40; ++step) {
        const auto batch = make_batch(2, {9, 9});
        const StepResult expected = single->train_step({&batch, 1}, 1e-2);
        const StepResult result = half->train_step({&batch, 1}, 1e-2, loss_scale);
        if (step == 0) {
          first = result.loss();
          EXPECT_NEAR(result.loss(), expected.loss(), 4 * u * expected.loss()) << architecture << name_of(dtype);
          EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 4 * u * expected.gradient_norm);
        }
        last = result.loss();
      }
      EXPECT_LT(last, 0.3 * first) << architecture << name_of(dtype);
    }
  }
}

// Of 16 bits where a step is one micro-batch and nobody asks for others: every gradient of a block is that of f32,
// rounded once. The embedding's has a part from the head and one from the first layer, which are rounded one by one.
TEST_F(EngineTest, GradientsOfOneMicroBatchHaveTheTypeOfTheComputation) {
  for (const auto& [dtype, u] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
    EngineOptions options;
    options.dtype = dtype;
    const auto half = make(small_config("bloom", 0.1), options), several = make(small_config("bloom", 0.1), options, 2);
    options.sharding.reduce_dtype = DType::f32;
    const auto single = make(small_config("bloom", 0.1), options);
    const PackedBatch batch = make_batch(2, {9, 9});
    for (Engine* engine : {half.get(), several.get(), single.get()}) engine->accumulate_gradients({&batch, 1}, 1024);
    for (int64_t unit = 0; unit < half->model().num_units(); ++unit) {
      const View exact = single->gradients(unit).flat, narrow = half->gradients(unit).flat;
      ASSERT_EQ(exact.dtype, DType::f32);
      ASSERT_EQ(narrow.dtype, dtype);
      EXPECT_EQ(bytes_of(several->gradients(unit).flat), bytes_of(exact));
      const auto count = static_cast<size_t>(exact.num_elems());
      std::vector<std::byte> rounded(2 * count);
      convert(exact.data, DType::f32, rounded.data(), dtype, count);
      if (unit > 0) {
        EXPECT_EQ(bytes_of(narrow), rounded) << unit;
        continue;
      }
      std::vector<float> widened(count);
      convert(narrow.data, dtype, widened.data(), DType::f32, count);
      const float* expected = exact.as<float>();
      float largest = 0;
      for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(expected[i]));
      for (size_t i = 0; i < count; ++i) EXPECT_NEAR(widened[i], expected[i], 2 * u * largest) << i;
    }
  }
}

// Masters are f32 and take part in training beyond the precision of what is computed with; the kept parameters are
// their rounded copies, after drawing, steps and loading.
TEST_F(EngineTest, KeptHalvesAreTheRoundedMasters) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EngineOptions options;
    const auto single = make(small_config("bloom"), options);
    options.dtype = dtype;
    const auto engine = make(small_config("bloom"), options), other = make(small_config("bloom"), options);
    const auto masters_of = [](Engine& of) {
      std::vector<std::vector<float>> masters;
      of.save_states([&](StateKind kind, int64_t, ElemRange, View from) {
        EXPECT_EQ(from.dtype, DType::f32);
        if (kind == StateKind::parameters) masters.emplace_back(from.as<float>(), from.as<float>() + from.num_elems());
      });
      return masters;
    };
    const auto expect_rounded = [&](Engine& of) {
      const auto masters = masters_of(of);
      for (int64_t u = 0; u < of.model().num_units(); ++u) {
        const auto& master = masters[static_cast<size_t>(u)];
        const View kept = of.parameters(u).flat;
        ASSERT_EQ(kept.dtype, dtype);
        std::vector<std::byte> rounded(2 * master.size());
        convert(master.data(), DType::f32, rounded.data(), dtype, master.size());
        EXPECT_EQ(bytes_of(kept.rows(0, std::ssize(master))), rounded);
      }
    };
    EXPECT_EQ(masters_of(*engine), masters_of(*single));
    expect_rounded(*engine);
    const auto before = masters_of(*engine);
    // A rate whose steps are far below what a 16-bit number near 1 can take.
    const PackedBatch batch = make_batch(2, {9, 9});
    for (int step = 0; step < 3; ++step) engine->train_step({&batch, 1}, 1e-5);
    expect_rounded(*engine);
    const auto after = masters_of(*engine);
    EXPECT_NE(after, before);

    other->load_states([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      engine->save_states([&](StateKind saved_kind, int64_t saved_unit, ElemRange saved, View from) {
        if (saved_kind != kind || saved_unit != unit) return;
        convert(from.rows(range.begin - saved.begin, range.end - saved.begin).data, DType::f32, to.data, to.dtype,
                static_cast<size_t>(range.size()));
      });
    });
    other->set_num_updates(engine->num_updates());
    EXPECT_EQ(masters_of(*other), after);
    EXPECT_TRUE(same_parameters(*engine, *other));
    // And both go on alike.
    EXPECT_EQ(engine->train_step({&batch, 1}, 1e-2).loss_sum, other->train_step({&batch, 1}, 1e-2).loss_sum);
    EXPECT_EQ(engine->train_step({&batch, 1}, 1e-2).loss_sum, other->train_step({&batch, 1}, 1e-2).loss_sum);
  }
}

// A step whose gradients overflow changes nothing, and the next is as if it had not been.
TEST_F(EngineTest, OverflowInHalvesIsSkipped) {
  EngineOptions options;
  options.dtype = DType::f16;
  const auto engine = make(small_config("gpt"), options), other = make(small_config("gpt"), options);
  const PackedBatch batch = make_batch(2, {9, 9});
  const StepResult skipped = engine->train_step({&batch, 1}, 1e-2, 0x1p40);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_TRUE(std::isfinite(skipped.loss()));
  EXPECT_EQ(engine->num_updates(), 0);
  EXPECT_TRUE(same_parameters(*engine, *other));
  for (int step = 0; step < 2; ++step) {
    const StepResult a = engine->train_step({&batch, 1}, 1e-2, 512), b = other->train_step({&batch, 1}, 1e-2, 512);
    EXPECT_FALSE(a.skipped);
    EXPECT_EQ(a.loss_sum, b.loss_sum);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  }
  EXPECT_TRUE(same_parameters(*engine, *other));
}

TEST_F(EngineTest, GenerationDoesNotDependOnItsNeighbours) {
  for (const char* architecture : {"bloom", "gpt"}) {
    const auto engine = make(small_config(architecture), {});
    const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11}};
    const auto together = engine->generate(prompts, 8, 2);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(engine->generate({&prompts[i], 1}, 8, 2)[0], together[i]);
      // And equals choosing the best next token of the whole text, again and again.
      std::vector<int32_t> text = prompts[i];
      for (const int32_t token : together[i]) {
        PackedBatch batch{text, std::vector<int32_t>(text.size(), -100), {0, static_cast<int32_t>(text.size())}, 0};
        std::vector<float> logits(text.size() * 13);
        engine->logits(batch, logits.data());
        const auto last = logits.end() - 13;
        EXPECT_EQ(std::max_element(last, logits.end()) - last, token);
        text.push_back(token);
      }
    }
  }
}

// What is planned is what is held, to the byte, in every category and phase.
TEST_F(EngineTest, ThePlanIsTheLedger) {
  for (const auto& [architecture, dtype, checkpoint_blocks] :
       {std::tuple{"bloom", DType::f32, false}, std::tuple{"bloom", DType::f32, true},
        std::tuple{"gpt", DType::f32, false}, std::tuple{"gpt", DType::f32, true},
        std::tuple{"bloom", DType::bf16, false}, std::tuple{"gpt", DType::f16, true}}) {
    const ModelConfig config = small_config(architecture, 0.1);
    EngineOptions options;
    options.dtype = dtype;
    options.checkpoint_blocks = checkpoint_blocks;
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
    engine.initialize_parameters(1);
    enter(Phase::resume);
    enter(Phase::step);
    engine.train_step({&batch, 1}, 1e-3);
    enter(Phase::evaluation);
    engine.evaluate(batch);
    engine.generate(std::vector<std::vector<int32_t>>{{1, 2, 3}, {4}}, 4, 2);
    enter(Phase::save);
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
  }
}

TEST(Plan, CountsTheOperationsOfADenseStep) {
  ModelConfig config;
  ASSERT_TRUE(find_known_model("bloom-560m", config));
  const int64_t T = 512, C = 1024, L = 24, V = 250880;
  const Plan plan = plan_run(config, {}, {{T, 1, T}, {}, {}, 0}, {});
  EXPECT_EQ(plan.num_parameters, 559214592);
  // 6 FLOPs a weight and token; attention 3.5 times its forward pass of 2·C·T(T+1).
  EXPECT_EQ(plan.micro_batch_flops, 6 * T * (12 * L * C * C + V * C) + 7 * L * C * T * (T + 1));
}

// Each strategy's own formula. P elements of all units, padded for R ranks; a step is every step but a run's first.
constexpr int R = 4;

TEST(Plan, CountsTheBytesOfAStep) {
  using enum ShardingStrategy;
  const ModelConfig config = small_config("bloom", 0);
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
    P += ShardPlan({}, R, 0, R).cut(model.unit(u).table().num_elems()).padded_elems;
  }
  const int64_t all = 4 * P * (R - 1) / R;  // bytes of a gather or a reduction of all units
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
    // Half of it in 16 bits, but for gradients that are added up before they are sent.
    EXPECT_EQ(sent(zero2, accum, R, DType::bf16).step_bytes_sent, (accum + 1) * all / 2);
    EXPECT_EQ(sent(no_shard, accum, R, DType::f16).step_bytes_sent, accum == 1 ? all : 2 * all);
  }
}

// A slot for the root and one for each block in flight, of parameters and of gradients.
TEST(Plan, HoldsNoMoreUnitsThanMayBeInFlight) {
  ModelConfig config = small_config("bloom", 0);
  config.num_layers = 5;
  const auto device = make_counting_device();
  const Model model(config, *device);
  const auto padded = [&](int64_t unit) {
    return 4 * ShardPlan({}, R, 0, R).cut(model.unit(unit).table().num_elems()).padded_elems;
  };
  for (const int limit : {1, 2, 4, 5, 9}) {
    EngineOptions options;
    options.sharding.strategy = ShardingStrategy::full_shard;
    options.sharding.max_units_in_flight = limit;
    const PlannedRank rank{.world_size = R, .rank = 1, .ranks_per_node = R};
    const Plan plan = plan_run(config, options, {{16, 2, 16}, {}, {}, 0}, rank);
    EXPECT_EQ(plan.device.peak(Phase::step, Category::gathered), 2 * (padded(0) + std::min(limit, 5) * padded(1)));
  }
}

// The head on the stack: d_rows, and for its one chunk rows, logits, normalised rows and their statistics.
TEST(Plan, TellsTheHeadsShare) {
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
