#include <gtest/gtest.h>

#include "tessera/optim/adamw.h"
#include "tessera/optim/schedule.h"

namespace tessera {
namespace {

TEST(Schedule, LinearRisesAndFalls) {
  const ScheduleOptions options{Schedule::linear, 4, 12};
  EXPECT_EQ(schedule_factor(options, 0), 0);
  EXPECT_EQ(schedule_factor(options, 1), 0.25);
  EXPECT_EQ(schedule_factor(options, 4), 1);
  EXPECT_EQ(schedule_factor(options, 8), 0.5);
  EXPECT_EQ(schedule_factor(options, 12), 0);
  EXPECT_EQ(schedule_factor({Schedule::linear, 0, 10}, 0), 1);
}

TEST(Schedule, ConstantAndCosine) {
  EXPECT_EQ(schedule_factor({Schedule::constant, 2, 10}, 1), 0.5);
  EXPECT_EQ(schedule_factor({Schedule::constant, 2, 10}, 9), 1);
  EXPECT_NEAR(schedule_factor({Schedule::cosine, 0, 10}, 5), 0.5, 1e-15);
  EXPECT_NEAR(schedule_factor({Schedule::cosine, 0, 10}, 10), 0, 1e-15);
  EXPECT_EQ(schedule_factor({Schedule::cosine, 2, 10}, 2), 1);
}

// DeepSpeed's WarmupLR and WarmupDecayLR compute min + (max - min) * gamma. At step i = 0, …, W - 1 of a warm-up of W
// steps, gamma is log(i + 1) / log(max(W, 2)).
TEST(Schedule, WarmsUpByLogarithms) {
  const ScheduleOptions options{Schedule::linear, 8, 16, Warmup::log};
  EXPECT_EQ(schedule_factor(options, 0), 0);
  EXPECT_DOUBLE_EQ(schedule_factor(options, 1), 1.0 / 3);  // log 2 / log 8
  EXPECT_DOUBLE_EQ(schedule_factor(options, 3), 2.0 / 3);
  EXPECT_EQ(schedule_factor(options, 8), 1);
  EXPECT_EQ(schedule_factor(options, 12), 0.5);
  EXPECT_EQ(schedule_factor({Schedule::constant, 1, 16, Warmup::log}, 0), 0);  // W = 1 does not divide by zero
}

TEST(Schedule, RunsBetweenTheLowestAndTheHighestRate) {
  const ScheduleOptions options{Schedule::linear, 4, 12};
  const RateBounds bounds{.start = 0.5, .peak = 2.5, .end = 1.5};
  EXPECT_EQ(scheduled_rate(options, bounds, 0), 0.5);
  EXPECT_EQ(scheduled_rate(options, bounds, 2), 1.5);
  EXPECT_EQ(scheduled_rate(options, bounds, 4), 2.5);
  EXPECT_EQ(scheduled_rate(options, bounds, 8), 2);
  // After the end, no schedule rises again.
  for (const Schedule kind : {Schedule::linear, Schedule::cosine, Schedule::cosine_with_restarts, Schedule::polynomial,
                              Schedule::warmup_stable_decay}) {
    EXPECT_EQ(scheduled_rate({.kind = kind, .num_warmup_steps = 4, .num_steps = 12, .num_decay_steps = 2}, bounds, 99),
              1.5);
  }
  // If the lowest rate is 0, the result equals the rate of Hugging Face's Trainer, bit for bit.
  EXPECT_EQ(scheduled_rate(options, {.start = 0, .peak = 5e-5, .end = 0}, 7), 5e-5 * schedule_factor(options, 7));
}

TEST(AdamW, CorrectsTheBiasOfTheMoments) {
  const AdamWStep step = adamw_step({0.9, 0.999, 1e-8, 0.01}, 2, 1e-3, 0.5, 7);
  EXPECT_DOUBLE_EQ(step.bias_correction1, 1 - 0.81);
  EXPECT_DOUBLE_EQ(step.bias_correction2, 1 - 0.999 * 0.999);
  EXPECT_EQ(step.gradient_scale, 0.5);
  EXPECT_EQ(step.num_decayed, 7);
}

TEST(Clip, ScalesOnlyGradientsAboveTheLimit) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
  EXPECT_EQ(clip_factor(1e9, 0), 1);
  EXPECT_EQ(clip_factor(INFINITY, 1), 0);
  for (const double max_norm : {0.0, 1.0}) EXPECT_TRUE(std::isnan(clip_factor(NAN, max_norm)));
}

TEST(Updates, AcceptOnlyFiniteNumbers) {
  for (const double max_norm : {0.0, 1.0}) {
    EXPECT_TRUE(may_update(2.5, 7, max_norm));
    EXPECT_TRUE(may_update(1e30, 0, max_norm));
    for (const double wrong : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
      EXPECT_FALSE(may_update(wrong, 7, max_norm));
      EXPECT_FALSE(may_update(2.5, wrong, max_norm));
    }
  }
  // The norm after clipping may be at most 1e19, because the squares of larger gradients could overflow f32.
  EXPECT_TRUE(may_update(2.5, 1e30, 1));
  EXPECT_FALSE(may_update(2.5, 1e30, 0));
  EXPECT_FALSE(may_update(2.5, 1e30, 1e25));
  EXPECT_TRUE(may_update(2.5, 0.9e19, 0));
  EXPECT_TRUE(std::isfinite(static_cast<float>(1e19) * static_cast<float>(1e19)));
}

}  // namespace
}  // namespace tessera
