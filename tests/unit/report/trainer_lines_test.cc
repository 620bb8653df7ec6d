#include "tessera/report/trainer_lines.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

TEST(TrainerLines, Step) {
  EXPECT_EQ(trainer_line(StepMetrics{.loss = 4.89501, .grad_norm = 81.47, .learning_rate = 1.08e-05, .epoch = 4}),
            "{'loss': 4.895, 'grad_norm': 81.47, 'learning_rate': 1.08e-05, 'epoch': 4.0}");
  EXPECT_EQ(trainer_line(StepMetrics{.loss = 0.00004,
                                     .grad_norm = 0.30000000000000004,
                                     .learning_rate = 4.9750000000000003e-05,
                                     .epoch = 1.0 / 3}),
            "{'loss': 0.0, 'grad_norm': 0.30000000000000004, 'learning_rate': 4.975e-05, 'epoch': 0.33}");
  EXPECT_EQ(trainer_line(StepMetrics{.loss = -std::nan(""), .grad_norm = INFINITY, .learning_rate = 0, .epoch = 0.005}),
            "{'loss': nan, 'grad_norm': inf, 'learning_rate': 0.0, 'epoch': 0.01}");
}

TEST(TrainerLines, Evaluation) {
  const EvalMetrics metrics{
      .loss = 2.3456789, .runtime_s = 12.345678, .num_samples = 1000, .num_steps = 250, .epoch = 1};
  EXPECT_EQ(trainer_line(metrics),
            "{'eval_loss': 2.3456789, 'eval_runtime': 12.3457, 'eval_samples_per_second': 81.0, "
            "'eval_steps_per_second': 20.25, 'epoch': 1.0}");
}

TEST(TrainerLines, CompleteTraining) {
  const TrainMetrics metrics{.runtime_s = 3, .num_samples = 100, .num_steps = 7, .mean_loss = 2.5, .epoch = 1.999};
  EXPECT_EQ(trainer_line(metrics),
            "{'train_runtime': 3.0, 'train_samples_per_second': 33.333, 'train_steps_per_second': 2.333, "
            "'train_loss': 2.5, 'epoch': 2.0}");
}

TEST(TrainerLines, WithoutTimeNoRates) {
  const TrainMetrics metrics{.runtime_s = 0, .num_samples = 0, .num_steps = 0, .mean_loss = 0, .epoch = 2};
  EXPECT_EQ(trainer_line(metrics), "{'train_runtime': 0.0, 'train_loss': 0.0, 'epoch': 2.0}");
}

TEST(TrainerLines, TimesAndRatesUnrounded) {
  const EvalMetrics eval{.loss = 2, .runtime_s = 3, .num_samples = 100, .num_steps = 7, .epoch = 1};
  EXPECT_EQ(
      timing_record(eval),
      (Record{{"eval_runtime", 3.0}, {"eval_samples_per_second", 100.0 / 3}, {"eval_steps_per_second", 7.0 / 3}}));
  const TrainMetrics train{.runtime_s = 0, .num_samples = 0, .num_steps = 0, .mean_loss = 0, .epoch = 2};
  EXPECT_EQ(timing_record(train), (Record{{"train_runtime", 0.0}}));
}

TEST(TrainerLines, Answers) {
  EXPECT_EQ(trainer_line(AnswerMetrics{.exact_match = 0.8125, .f1 = 0.875}),
            "Evaluation Metrics: {'exact_match': 0.8125, 'f1': 0.875}");
}

}  // namespace
}  // namespace tessera
