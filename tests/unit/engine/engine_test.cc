#include "tessera/engine/engine.h"

#include <algorithm>
#include <array>

#include "engine_fixture.h"
#include "tessera/base/random.h"
#include "tessera/ops/sampling_numbers.h"

namespace tessera {
namespace {

// Compares gradients of the complete model with central differences of the loss in double precision. Covers every kind
// of block, some of them with dropout.
TEST_F(EngineTest, GradientsMatchFiniteDifferences) {
  for (const ModelConfig& config : {small_config("bloom"), small_config("bloom", 0.2), small_config("bloom", 0.2, true),
                                    small_config("gpt"), small_config("gpt", 0.2), untied(small_config("bloom", 0.2)),
                                    untied(small_config("gpt")), small_config("llama", 0.2), small_config("qwen3"),
                                    untied(small_config("qwen3", 0.2)), small_config("mistral")}) {
    EngineOptions options;
    options.dtype = DType::f64;
    const auto engine = make(config, options);
    const PackedBatch batch = make_batch(3, {5, 1, 9, 2});
    const auto loss = [&] { return probe(*engine).accumulate_gradients({&batch, 1}).loss(); };
    loss();
    std::vector<std::vector<double>> gradients;
    for (int64_t u = 0; u < engine->model().num_units(); ++u) {
      const View g = probe(*engine).gradients(u).trainable();
      gradients.emplace_back(g.as<double>(), g.as<double>() + g.num_elems());
    }
    for (int64_t u = 0; u < engine->model().num_units(); ++u) {
      const ParameterViews p = probe(*engine).parameters(u);
      for (size_t i = 0; i < p.table->specs().size(); ++i) {
        const ParameterSpec& spec = p.table->specs()[i];
        for (int64_t k = 0; k < 3; ++k) {  // three elements of each tensor
          const int64_t j = spec.offset + (k * 7919) % spec.shape.num_elems();
          double& x = p.trainable().as<double>()[j];
          const double kept = x, h = 1e-5;
          x = kept + h;
          const double above = loss();
          x = kept - h;
          const double below = loss();
          x = kept;
          // If the derivatives of the loss are about 1, the quotient has a truncation error of about h² = 1e-10 and a
          // rounding error of about 1e-16 / h = 1e-11. The tolerance of 1e-7 leaves room for larger derivatives. With
          // this seed, no input of a ReLU is so close to 0 that changing a parameter by h changes its sign.
          EXPECT_NEAR(gradients[static_cast<size_t>(u)][static_cast<size_t>(j)], (above - below) / (2 * h), 1e-7)
              << config.architecture << " dropout " << config.hidden_dropout << " " << spec.name << " [" << k << "]";
        }
      }
    }
  }
}

TEST_F(EngineTest, RecomputationChangesNoBit) {
  // All parameters, masters and moments.
  const auto states_of = [](Engine& engine) {
    std::vector<std::byte> states;
    engine.states().save([&](StateKind, int64_t, ElemRange, View from) {
      states.insert(states.end(), from.data, from.data + from.bytes());
    });
    return states;
  };
  const AdapterOptions adapter{.rank = 3, .alpha = 6, .dropout = 0.3};
  int turn = 0;
  for (const char* architecture : {"bloom", "gpt", "llama", "qwen3"}) {
    for (const bool adapted : {false, true}) {
      ModelConfig config = small_config(architecture, 0.1, turn % 4 == 1);
      config.num_layers = 3;
      if (!config.sliding_layers.empty()) config.sliding_layers = {false, true, false};
      config.tied_head = turn % 3 > 0;
      if (adapted) config.adapter = adapter;
      if (adapted && turn % 4 == 1) config.quantization = Quantization{};
      EngineOptions options;
      options.dtype = std::array{DType::f32, DType::bf16, DType::f16}[static_cast<size_t>(turn++ % 3)];
      options.max_grad_norm = 1;
      const auto step = [](Engine& engine, uint64_t number) {
        const std::vector<PackedBatch> window{make_batch(number, {5, 4}), make_batch(number + 10, {7})};
        const StepResult result = engine.train_step(window, 1e-2);
        return std::pair(result.loss_sum, result.gradient_norm);
      };
      const auto plain = make(config, options, 2);
      std::vector<std::pair<double, double>> expected;
      for (uint64_t number = 0; number < 3; ++number) expected.push_back(step(*plain, number));
      EXPECT_GT(expected[0].second, 0);
      for (const Recomputation& recomputation :
           {Recomputation{.blocks = 1}, Recomputation{.blocks = kAllBlocks}, Recomputation{.mlp = 2},
            Recomputation{.mlp = kAllBlocks}, Recomputation{.attention = 1}, Recomputation{.attention = kAllBlocks},
            Recomputation{.mlp = kAllBlocks, .attention = kAllBlocks},
            Recomputation{.blocks = 1, .mlp = 3, .attention = 1}}) {
        SCOPED_TRACE(config.architecture + " " + std::to_string(adapted) + " " + std::to_string(recomputation.blocks) +
                     " " + std::to_string(recomputation.mlp) + " " + std::to_string(recomputation.attention));
        options.recomputation = recomputation;
        const auto engine = make(config, options, 2);
        for (uint64_t number = 0; number < 3; ++number) EXPECT_EQ(step(*engine, number), expected[number]);
        EXPECT_TRUE(states_of(*engine) == states_of(*plain));
      }
    }
  }
}

// The loss of a step is the mean over all targets of its micro-batches. It does not depend on how the step is split
// into micro-batches, even with dropout.
TEST_F(EngineTest, AccumulationEqualsOneBatch) {
  EngineOptions options;
  options.dtype = DType::f64;
  const auto complete = make(small_config("gpt", 0.1), options), parts = make(small_config("gpt", 0.1), options, 3);
  const PackedBatch all = make_batch(5, {6, 3, 8});
  std::vector<PackedBatch> window;
  for (size_t b = 0; b < 3; ++b) window.push_back(alone(all, b));
  const StepResult a = complete->train_step({&all, 1}, 1e-2), b = parts->train_step(window, 1e-2);
  EXPECT_NEAR(a.loss_sum, b.loss_sum, 1e-12);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-12);
}

TEST_F(EngineTest, EmptyMicroBatchesAndStepsWithoutTargetsChangeNothing) {
  for (const ModelConfig& config : {small_config("bloom"), untied(small_config("bloom"))}) {
    const auto engine = make(config, {}, 2);
    PackedBatch without = make_batch(1, {4});
    std::fill(without.labels.begin(), without.labels.end(), -100);
    without.num_targets = 0;
    const StepResult result = engine->train_step(std::vector{without, PackedBatch{{}, {}, {0}, 0}}, 1e-2);
    EXPECT_TRUE(std::isnan(result.loss()));
    EXPECT_TRUE(std::isnan(result.gradient_norm));
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.num_tokens, 4);
    EXPECT_EQ(engine->num_updates(), 0);
    EXPECT_TRUE(same_parameters(*engine, *make(config, {})));
  }
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

TEST_F(EngineTest, GenerationDoesNotDependOnOtherPrompts) {
  for (const ModelConfig& config : {small_config("bloom"), small_config("gpt"), untied(small_config("bloom")),
                                    small_config("qwen3"), small_config("mistral")}) {
    const auto engine = make(config, {});
    const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11}};
    const auto together = engine->generate(prompts, {.max_new_tokens = 8, .eos_id = 2});
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(engine->generate({&prompts[i], 1}, {.max_new_tokens = 8, .eos_id = 2})[0], together[i]);
      // Each generated token is the most likely token after the complete text so far.
      std::vector<int32_t> text = prompts[i];
      for (const int32_t token : together[i]) {
        PackedBatch batch{text, std::vector<int32_t>(text.size(), -100), {0, static_cast<int32_t>(text.size())}, 0};
        std::vector<float> logits(text.size() * 13);
        probe(*engine).logits(batch, logits.data());
        const auto last = logits.end() - 13;
        EXPECT_EQ(std::max_element(last, logits.end()) - last, token);
        text.push_back(token);
      }
    }
  }
}

// A drawn token depends only on the seed, on the prompt, on the prompt's number and on the token's position. The test
// repeats each draw with the logits of the complete text so far.
TEST_F(EngineTest, SampledTextsDoNotDependOnOtherPrompts) {
  for (const ModelConfig& config : {small_config("bloom"), untied(small_config("bloom")), small_config("qwen3")}) {
    const auto engine = make(config, {});
    const std::vector<std::vector<int32_t>> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11}, {4}};
    GenerationOptions options{.max_new_tokens = 12,
                              .eos_id = 2,
                              .sampling = Sampling{.temperature = 1.3, .top_k = 11, .top_p = 0.95},
                              .seed = 5,
                              .first_number = 100};
    std::vector<std::vector<int32_t>> seen(prompts.size());
    options.on_token = [&](int64_t prompt, int32_t id) {
      seen[static_cast<size_t>(prompt - 100)].push_back(id);
      return true;
    };
    const auto together = engine->generate(prompts, options);
    EXPECT_EQ(seen, together);
    EXPECT_NE(together[1], together[3]);  // prompts 1 and 3 have the same text, but different numbers
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerationOptions alone = options;
      alone.on_token = {};
      alone.first_number = options.first_number + static_cast<int64_t>(i);
      EXPECT_EQ(engine->generate({&prompts[i], 1}, alone)[0], together[i]);
      std::vector<int32_t> text = prompts[i];
      for (size_t t = 0; t < together[i].size(); ++t) {
        PackedBatch batch{text, std::vector<int32_t>(text.size(), -100), {0, static_cast<int32_t>(text.size())}, 0};
        std::vector<float> logits(text.size() * 13);
        probe(*engine).logits(batch, logits.data());
        int64_t draw = static_cast<int64_t>(sampling_draw(options.seed, alone.first_number, static_cast<int64_t>(t)));
        int32_t id = -1;
        engine->ops().sample_rows(view_of(logits.data() + logits.size() - 13, {1, 13}), view_of(&draw, {1}),
                                  *options.sampling, view_of(&id, {1}));
        EXPECT_EQ(id, together[i][t]);
        text.push_back(together[i][t]);
      }
    }
    options.on_token = [&](int64_t prompt, int32_t id) { return prompt != 102 || id != together[2][3]; };
    auto ended = together;
    ended[2].resize(static_cast<size_t>(std::ranges::find(ended[2], together[2][3]) - ended[2].begin()) + 1);
    EXPECT_EQ(engine->generate(prompts, options), ended);
    options.on_token = {};
    options.seed = 6;
    EXPECT_NE(engine->generate(prompts, options), together);
  }
}

// Freezes random tensors. The gradients of all other tensors have the same bits as without frozen tensors. Training
// does not change the frozen tensors.
TEST_F(EngineTest, FrozenParametersChangeNoGradientOfTheOthers) {
  RandomStream random(17, 0);
  for (int turn = 0; turn < 40; ++turn) {
    ModelConfig config =
        small_config(std::array{"bloom", "gpt", "llama", "qwen3"}[static_cast<size_t>(turn % 4)], turn % 3 ? 0 : 0.1);
    config.tied_head = turn / 4 % 2 == 0;
    EngineOptions options;
    options.recomputation = {.blocks = turn / 8 % 3, .mlp = turn / 2 % 3, .attention = turn / 5 % 3};
    options.max_grad_norm = 0.5;
    const auto plain = make(config, options);
    // The tensors of the model are numbered from 0. A tensor trains if its number modulo 5 equals `part`. Each of the
    // remaining tensors trains with a probability of 1/3. Joined tensors share one number and one choice.
    const uint64_t part = random.next_below(5);
    uint64_t number = 0;
    bool freezes = false;
    for (int64_t u = 0; u < plain->model().num_units(); ++u) {
      for (const ParameterSpec& spec : plain->model().unit(u).table().specs()) {
        if (!spec.joined) freezes = number++ % 5 != part && random.next_below(3) > 0;
        if (freezes) options.frozen.push_back(spec.name);
      }
    }
    const auto engine = make(config, options);
    const PackedBatch batch = make_batch(static_cast<uint64_t>(turn), {5, 1, 9});
    EXPECT_EQ(probe(*plain).accumulate_gradients({&batch, 1}).loss(),
              probe(*engine).accumulate_gradients({&batch, 1}).loss());
    std::vector<std::vector<std::byte>> frozen;
    const auto for_each_tensor = [&](const auto& visit) {
      for (int64_t u = 0; u < engine->model().num_units(); ++u) {
        for (size_t i = 0; i < engine->model().unit(u).table().specs().size(); ++i) visit(u, i);
      }
    };
    for_each_tensor([&](int64_t u, size_t i) {
      const ParameterSpec& spec = engine->model().unit(u).table().specs()[i];
      const View gradient = probe(*engine).gradients(u)[i];
      EXPECT_EQ(static_cast<bool>(gradient), spec.trainable());
      EXPECT_EQ(bytes_of(probe(*engine).parameters(u)[i]), bytes_of(probe(*plain).parameters(u)[i])) << spec.name;
      if (spec.trainable()) {
        EXPECT_EQ(bytes_of(gradient), bytes_of(probe(*plain).gradients(u)[i])) << turn << " " << spec.name;
      }
      frozen.push_back(bytes_of(probe(*engine).parameters(u)[i]));
    });
    for (int step = 0; step < 2; ++step) engine->train_step({&batch, 1}, 1e-2);
    size_t at = 0;
    for_each_tensor([&](int64_t u, size_t i) {
      const ParameterSpec& spec = engine->model().unit(u).table().specs()[i];
      if (!spec.trainable()) {
        EXPECT_EQ(bytes_of(probe(*engine).parameters(u)[i]), frozen[at]) << turn << " " << spec.name;
      }
      ++at;
    });
  }
}

// A new adapter changes nothing: B is zero. After training, the base has its old bits, and the outputs differ.
TEST_F(EngineTest, NewAdaptersGiveTheLossOfTheBase) {
  for (const char* architecture : {"bloom", "gpt", "llama", "qwen3"}) {
    ModelConfig config = small_config(architecture);
    const auto base = make(config, {});
    config.adapter = AdapterOptions{.rank = 3, .alpha = 6, .dropout = 0.3};
    const auto engine = make(config, {});
    const PackedBatch batch = make_batch(3, {5, 1, 9});
    EXPECT_NEAR(base->evaluate(batch).loss_sum, engine->evaluate(batch).loss_sum, 1e-5) << architecture;
    for (int step = 0; step < 3; ++step) engine->train_step({&batch, 1}, 1e-2);
    EXPECT_LT(engine->evaluate(batch).loss_sum, base->evaluate(batch).loss_sum - 1e-3) << architecture;
    for (int64_t u = 0; u < base->model().num_units(); ++u) {
      const ParameterTable& table = base->model().unit(u).table();
      for (size_t i = 0; i < table.specs().size(); ++i) {
        EXPECT_EQ(table.specs()[i].name, engine->model().unit(u).table().specs()[i].name);
        EXPECT_EQ(bytes_of(probe(*base).parameters(u)[i]), bytes_of(probe(*engine).parameters(u)[i]));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
