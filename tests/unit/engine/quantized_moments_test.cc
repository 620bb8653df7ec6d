// Tests training with AdamW's moments in 8 bits.
#include "tessera/base/quantized_moments.h"

#include <map>

#include "engine_fixture.h"

namespace tessera {
namespace {

class QuantizedMomentsTest : public EngineTest {
 protected:
  using Saved = std::map<std::pair<StateKind, int64_t>, std::vector<std::byte>>;

  static Saved saved(Engine& engine) {
    Saved all;
    engine.states().save([&](StateKind kind, int64_t unit, ElemRange range, View from) {
      EXPECT_EQ(from.dtype, engine.states().dtype(kind));
      EXPECT_EQ(range.begin, 0);
      EXPECT_EQ(range.size(), engine.states().num_elems(kind, unit));
      all[{kind, unit}] = bytes_of(from);
    });
    return all;
  }
};

// A run that continues from saved states has the same bits as an uninterrupted run. The parameters have exact masters.
TEST_F(QuantizedMomentsTest, ResumeExactly) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EngineOptions options;
    options.dtype = dtype;
    options.optimizer_states = OptimizerStates::q8;
    const PackedBatch batch = make_batch(2, {9, 9});
    const auto whole = make(small_config("gpt"), options), first = make(small_config("gpt"), options),
               second = make(small_config("gpt"), options);
    EXPECT_EQ(whole->states().dtype(StateKind::parameters), DType::f32);
    EXPECT_EQ(whole->states().dtype(StateKind::moment1), DType::q8_signed);
    EXPECT_EQ(whole->states().dtype(StateKind::moment2), DType::q8_unsigned);
    for (int step = 0; step < 6; ++step) whole->train_step({&batch, 1}, 1e-2);
    for (int step = 0; step < 3; ++step) first->train_step({&batch, 1}, 1e-2);
    const Saved states = saved(*first);
    second->states().load([&](StateKind kind, int64_t unit, ElemRange range, View to) {
      const std::byte* from = states.at({kind, unit}).data();
      if (is_moment_block(to.dtype)) {
        std::copy_n(from + range.begin * static_cast<int64_t>(size_of(to.dtype)), to.bytes(), to.data);
      } else {
        convert(from + range.begin * 4, DType::f32, to.data, to.dtype, static_cast<size_t>(range.size()));
      }
    });
    second->set_num_updates(3);
    EXPECT_EQ(saved(*second), states);
    for (int step = 0; step < 3; ++step) second->train_step({&batch, 1}, 1e-2);
    EXPECT_EQ(saved(*second), saved(*whole));
    EXPECT_TRUE(same_parameters(*second, *whole));
  }
}

// Only gradients that are not zero change moments. The moments of a block's padding, and of the gaps between tensors,
// stay zero, and no second moment whose gradient was not zero is zero.
TEST_F(QuantizedMomentsTest, SecondMomentsAreZeroOnlyWithoutGradients) {
  EngineOptions options;
  options.optimizer_states = OptimizerStates::q8;
  const auto engine = make(small_config("bloom"), options);
  const PackedBatch batch = make_batch(2, {9, 9});
  for (int step = 0; step < 5; ++step) engine->train_step({&batch, 1}, 1e-2);
  const Saved states = saved(*engine);
  int64_t num_zero = 0, num_updated = 0;
  for (int64_t u = 0; u < engine->model().num_units(); ++u) {
    const int64_t num_blocks = engine->states().num_elems(StateKind::moment2, u);
    std::vector<float> first(static_cast<size_t>(num_blocks * kQuantizedValues)), second(first.size());
    dequantize(states.at({StateKind::moment1, u}).data(), DType::q8_signed, 0, std::ssize(first), first.data());
    dequantize(states.at({StateKind::moment2, u}).data(), DType::q8_unsigned, 0, std::ssize(second), second.data());
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i] != 0) {
        EXPECT_GT(second[i], 0) << u << " " << i;
        ++num_updated;
      }
      num_zero += second[i] == 0;
    }
  }
  EXPECT_GT(num_updated, 1000);
  EXPECT_GT(num_zero, 50);
}

// With moments in 8 bits, the loss falls as with fp32 moments. The first update has the same bits, because it uses
// moments that are not yet rounded. Later, a rounded moment has an error of a few percent, with either sign. The update
// is a quotient of two moments, so it is wrong by the same few percent, and the losses of the two runs differ by a
// small part of the distance that the loss falls.
TEST_F(QuantizedMomentsTest, TrainLikeSinglePrecisionStates) {
  for (const char* architecture : {"bloom", "gpt", "qwen3"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      EngineOptions options;
      options.max_grad_norm = 1;
      options.dtype = dtype;
      const auto wide = make(small_config(architecture), options);
      options.optimizer_states = OptimizerStates::q8;
      const auto narrow = make(small_config(architecture), options);
      const PackedBatch batch = make_batch(2, {9, 9, 8});
      double first = 0, expected = 0, last = 0;
      for (int step = 0; step < 300; ++step) {
        expected = wide->train_step({&batch, 1}, 1e-3).loss();
        last = narrow->train_step({&batch, 1}, 1e-3).loss();
        if (step == 0) first = last;
        if (step < 2) {
          EXPECT_EQ(last, expected);
        }
      }
      EXPECT_LT(expected, 0.5 * first) << architecture;
      EXPECT_NEAR(last, expected, 0.02 * first) << architecture << " " << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace tessera
