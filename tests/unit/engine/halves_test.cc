// Tests training in the two 16-bit types (halves), bf16 and f16.
#include <cmath>
#include <map>

#include "engine_fixture.h"

namespace tessera {
namespace {

class HalvesTest : public EngineTest {};

// Parameters and each layer's outputs are rounded to 16 bits. Each rounding changes an activation by at most u = 2^-8
// (bf16) or 2^-11 (f16) of its size. Two blocks and the head round about 16 times in the forward pass and as often in
// the backward pass. With random signs, 16 errors of u add up to 4u. Losses and norms average over many values, so
// their errors stay below 4u. A block of qwen3 rounds twice as often (norms of heads, rotations, two factors of the
// gated layer). It also normalizes heads of only 6 channels. Both effects together double the bound for the gradient
// norm: its error is at most 8u. The errors are checked in the first step. After that, the loss must fall in 40 steps.
TEST_F(HalvesTest, HalvesStayNearSinglePrecision) {
  for (const char* architecture : {"bloom", "gpt", "qwen3"}) {
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
          const double roundings = std::string_view(architecture) == "qwen3" ? 8 : 4;
          EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, roundings * u * expected.gradient_norm);
        }
        last = result.loss();
      }
      EXPECT_LT(last, 0.3 * first) << architecture << name_of(dtype);
    }
  }
}

// If a step has one micro-batch and reduce_dtype is not set, gradients have 16 bits. Every gradient of a block is the
// f32 gradient, rounded once. The embedding's gradient is the sum of two parts, one from the tied head and one from the
// lookup of the tokens. Each part is rounded, so the bound is 2u. An engine for two micro-batches (`several`) keeps
// f32 gradients.
TEST_F(HalvesTest, GradientsOfOneMicroBatchHaveTheTypeOfTheComputation) {
  for (const auto& [dtype, u] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
    EngineOptions options;
    options.dtype = dtype;
    const auto half = make(small_config("bloom", 0.1), options), several = make(small_config("bloom", 0.1), options, 2);
    options.sharding.reduce_dtype = DType::f32;
    const auto single = make(small_config("bloom", 0.1), options);
    const PackedBatch batch = make_batch(2, {9, 9});
    for (Engine* engine : {half.get(), several.get(), single.get()})
      probe(*engine).accumulate_gradients({&batch, 1}, 1024);
    for (int64_t unit = 0; unit < half->model().num_units(); ++unit) {
      const View exact = probe(*single).gradients(unit).trainable(), narrow = probe(*half).gradients(unit).trainable();
      ASSERT_EQ(exact.dtype, DType::f32);
      ASSERT_EQ(narrow.dtype, dtype);
      EXPECT_EQ(bytes_of(probe(*several).gradients(unit).trainable()), bytes_of(exact));
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

// The masters, which are the parameters that AdamW updates, are f32. They therefore keep updates that are too small for
// 16 bits. After initialization, after steps and after loading, the parameters that the model computes with are the
// rounded masters.
TEST_F(HalvesTest, KeptHalvesAreTheRoundedMasters) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EngineOptions options;
    const auto single = make(small_config("bloom"), options);
    options.dtype = dtype;
    const auto engine = make(small_config("bloom"), options), other = make(small_config("bloom"), options);
    const auto masters_of = [](Engine& of) {
      std::vector<std::vector<float>> masters;
      of.states().save([&](StateKind kind, int64_t, ElemRange, View from) {
        EXPECT_EQ(from.dtype, DType::f32);
        if (kind == StateKind::parameters) masters.emplace_back(from.as<float>(), from.as<float>() + from.num_elems());
      });
      return masters;
    };
    const auto expect_rounded = [&](Engine& of) {
      const auto masters = masters_of(of);
      for (int64_t u = 0; u < of.model().num_units(); ++u) {
        const auto& master = masters[static_cast<size_t>(u)];
        const View kept = probe(of).parameters(u).trainable();
        ASSERT_EQ(kept.dtype, dtype);
        std::vector<std::byte> rounded(2 * master.size());
        convert(master.data(), DType::f32, rounded.data(), dtype, master.size());
        EXPECT_EQ(bytes_of(kept.rows(0, std::ssize(master))), rounded);
      }
    };
    EXPECT_EQ(masters_of(*engine), masters_of(*single));
    expect_rounded(*engine);
    const auto before = masters_of(*engine);
    // Updates at this learning rate are far smaller than the distance between 16-bit numbers near 1.
    const PackedBatch batch = make_batch(2, {9, 9});
    for (int step = 0; step < 3; ++step) engine->train_step({&batch, 1}, 1e-5);
    expect_rounded(*engine);
    const auto after = masters_of(*engine);
    EXPECT_NE(after, before);

    other->states().load([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      engine->states().save([&](StateKind saved_kind, int64_t saved_unit, ElemRange saved, View from) {
        if (saved_kind != kind || saved_unit != unit) return;
        convert(from.rows(range.begin - saved.begin, range.end - saved.begin).data, DType::f32, to.data, to.dtype,
                static_cast<size_t>(range.size()));
      });
    });
    other->set_num_updates(engine->num_updates());
    EXPECT_EQ(masters_of(*other), after);
    EXPECT_TRUE(same_parameters(*engine, *other));
    // Both engines continue with equal results.
    EXPECT_EQ(engine->train_step({&batch, 1}, 1e-2).loss_sum, other->train_step({&batch, 1}, 1e-2).loss_sum);
    EXPECT_EQ(engine->train_step({&batch, 1}, 1e-2).loss_sum, other->train_step({&batch, 1}, 1e-2).loss_sum);
  }
}

// With bf16 states, the parameters that the model computes with are also the masters, and every array is bf16. A run
// that continues from saved states has the same bits as an uninterrupted run. The random bits of the rounding depend on
// the seed and on the number of the update, so another seed or number gives other states.
TEST_F(HalvesTest, Bf16StatesResumeExactly) {
  EngineOptions options;
  options.dtype = DType::bf16;
  options.optimizer_states = OptimizerStates::bf16;
  options.seed = 5;
  const PackedBatch batch = make_batch(2, {9, 9});
  const auto states_of = [](Engine& of) {
    std::vector<std::vector<std::byte>> states;
    of.states().save([&](StateKind kind, int64_t unit, ElemRange, View from) {
      EXPECT_EQ(from.dtype, DType::bf16);
      states.push_back(bytes_of(from));
      if (kind == StateKind::parameters) {
        EXPECT_EQ(states.back(), bytes_of(probe(of).parameters(unit).trainable()));
      }
    });
    return states;
  };
  const auto whole = make(small_config("gpt"), options), first = make(small_config("gpt"), options),
             second = make(small_config("gpt"), options);
  for (int step = 0; step < 6; ++step) whole->train_step({&batch, 1}, 1e-2);
  for (int step = 0; step < 3; ++step) first->train_step({&batch, 1}, 1e-2);
  const auto continue_in = [&](Engine& engine, int64_t updates) {
    size_t at = 0;
    const auto saved = states_of(*first);
    std::map<std::pair<StateKind, int64_t>, const std::vector<std::byte>*> arrays;
    first->states().save([&](StateKind kind, int64_t unit, ElemRange, View) { arrays[{kind, unit}] = &saved[at++]; });
    engine.states().load([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      const std::byte* from = arrays.at({kind, unit})->data() + 2 * range.begin;
      convert(from, DType::bf16, to.data, to.dtype, static_cast<size_t>(range.size()));
    });
    engine.set_num_updates(updates);
    for (int step = 0; step < 3; ++step) engine.train_step({&batch, 1}, 1e-2);
    return states_of(engine);
  };
  EXPECT_EQ(continue_in(*second, 3), states_of(*whole));
  EXPECT_NE(continue_in(*second, 4), states_of(*whole));
  options.seed = 6;
  EXPECT_NE(continue_in(*make(small_config("gpt"), options), 3), states_of(*whole));
}

// With bf16 states and a small learning rate, the loss falls as with fp32 states. If the states were rounded to
// nearest, many updates would be lost: an update of 1e-3 is an eighth of the distance between bf16 numbers above 1, and
// half of the distance above 0.25. The losses of the two runs differ because the rounded parameters make a random walk
// on the grid of bf16 numbers. Near a parameter p, neighbouring bf16 numbers are d ≤ 2^-7 |p| apart. After n updates of
// size lr, the parameter differs by about √(n·lr·d) from the parameter with fp32 states. This difference averages out
// over the elements.
TEST_F(HalvesTest, Bf16StatesTrainLikeSinglePrecisionStates) {
  for (const char* architecture : {"bloom", "qwen3"}) {
    EngineOptions options;
    options.max_grad_norm = 1;
    options.dtype = DType::bf16;
    const auto wide = make(small_config(architecture), options);
    options.optimizer_states = OptimizerStates::bf16;
    const auto narrow = make(small_config(architecture), options);
    const PackedBatch batch = make_batch(2, {9, 9, 8});
    double first = 0, expected = 0, last = 0;
    for (int step = 0; step < 300; ++step) {
      expected = wide->train_step({&batch, 1}, 1e-3).loss();
      last = narrow->train_step({&batch, 1}, 1e-3).loss();
      if (step == 0) {
        first = last;
        EXPECT_EQ(last, expected);
      }
    }
    EXPECT_LT(expected, 0.5 * first) << architecture;
    EXPECT_NEAR(last, expected, 0.05 * first) << architecture;
  }
}

// A step with overflowing gradients changes nothing. The next step gives the same result as without the skipped step.
TEST_F(HalvesTest, OverflowInHalvesIsSkipped) {
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

}  // namespace
}  // namespace tessera
