#include "tessera/log/trainer_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace tessera {
namespace {

template <typename Metrics>
std::string trainer_line(const Metrics& metrics) {
  return tessera::trainer_line(metrics, LineStyle::trainer);
}

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
  const StepMetrics without{.loss = {}, .grad_norm = {}, .learning_rate = 0.5, .epoch = 1};
  for (const LineStyle style : {LineStyle::trainer, LineStyle::rounded}) {
    EXPECT_EQ(trainer_line(without, style), "{'learning_rate': 0.5, 'epoch': 1.0}");
    EXPECT_EQ(trainer_line(TrainMetrics{.runtime_s = 0, .num_samples = 0, .num_steps = 1, .mean_loss = {}, .epoch = 1},
                           style),
              "{'train_runtime': 0.0, 'epoch': 1.0}");
  }
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

TEST(TrainerLines, AnswersOfTwoGroups) {
  AnswerMetrics metrics{.exact_match = 0.25, .f1 = 0.5};
  metrics.without_answer = {.exact_match = 1.0 / 3, .f1 = 1.0 / 3, .total = 3};
  EXPECT_EQ(to_json(answer_record(metrics, "_before")),
            "{\"exact_match_before\": 0.25, \"f1_before\": 0.5, \"NoAns_exact_before\": 0.3333333333333333, "
            "\"NoAns_f1_before\": 0.3333333333333333, \"NoAns_total_before\": 3}");
  metrics.with_answer = {.exact_match = 0, .f1 = 1, .total = 1};
  EXPECT_EQ(trainer_line(metrics, LineStyle::rounded),
            "Evaluation Metrics: {'exact_match': 0.25, 'f1': 0.5, 'HasAns_exact': 0.0, 'HasAns_f1': 1.0, "
            "'HasAns_total': 1, 'NoAns_exact': 0.3333, 'NoAns_f1': 0.3333, 'NoAns_total': 3}");
}

constexpr LineStyle kScreen = LineStyle::rounded;

TEST(TrainerLines, StepOnATerminal) {
  const StepMetrics usual{
      .loss = 2.34567, .grad_norm = 1.3012345678901234, .learning_rate = 4.9750000000000003e-05, .epoch = 0.333};
  EXPECT_EQ(trainer_line(usual, kScreen),
            "{'loss': 2.3457, 'grad_norm': 1.301, 'learning_rate': 4.975e-05, 'epoch': 0.33}");
  const StepMetrics wide{
      .loss = 0.012345, .grad_norm = 0.0012345678901234567, .learning_rate = 4.9753e-05, .epoch = 10.333};
  EXPECT_EQ(trainer_line(wide, kScreen),
            "{'loss': 0.0123, 'grad_norm': 0.0012, 'learning_rate': 4.98e-05, 'epoch': 10.33}");
  EXPECT_EQ(
      trainer_line(StepMetrics{.loss = -std::nan(""), .grad_norm = INFINITY, .learning_rate = 0, .epoch = 4}, kScreen),
      "{'loss': nan, 'grad_norm': inf, 'learning_rate': 0.0, 'epoch': 4.0}");
}

// The values are usual, very large or very small. Lines with very large and very small values need more columns.
TEST(TrainerLines, EveryStepFitsATerminal) {
  std::mt19937_64 random(7);
  const auto any_size = [&](double from, double to) {
    return std::pow(10, std::uniform_real_distribution(from, to)(random));
  };
  for (int i = 0; i < 20000; ++i) {
    const StepMetrics metrics{.loss = any_size(-5, i % 2 ? 3 : 38),
                              .grad_norm = any_size(i % 3 ? -4 : -300, i % 3 ? 4 : 300),
                              .learning_rate = any_size(i % 5 ? -9 : -300, 1),
                              .epoch = any_size(-3, i % 7 ? 3 : 9)};
    const std::string line = trainer_line(metrics, kScreen);
    ASSERT_LE(line.size(), static_cast<size_t>(kTerminalColumns)) << line << " is " << trainer_line(metrics);
    double loss = 0;  // a number that was cut in the middle would be much too small or too large
    ASSERT_EQ(std::sscanf(line.c_str(), "{'loss': %lf", &loss), 1);
    ASSERT_NEAR(loss, *metrics.loss, 0.00005 + 0.5 * *metrics.loss) << line;
  }
}

TEST(TrainerLines, OthersOnATerminal) {
  const EvalMetrics eval{.loss = 2.3456789, .runtime_s = 0, .num_samples = 1000, .num_steps = 250, .epoch = 1};
  EXPECT_EQ(trainer_line(eval, kScreen), "{'eval_loss': 2.3457, 'eval_runtime': 0.0, 'epoch': 1.0}");
  const TrainMetrics train{.runtime_s = 0, .num_samples = 0, .num_steps = 0, .mean_loss = 2.3456789, .epoch = 2};
  EXPECT_EQ(trainer_line(train, kScreen), "{'train_runtime': 0.0, 'train_loss': 2.3457, 'epoch': 2.0}");
  const AnswerMetrics answers{.exact_match = 1.0 / 3, .f1 = 0.42857142857142855};
  EXPECT_EQ(trainer_line(answers, kScreen), "Evaluation Metrics: {'exact_match': 0.3333, 'f1': 0.4286}");
}

TEST(TrainerLines, AsJson) {
  EXPECT_EQ(trainer_line(StepMetrics{.loss = 2.34567, .grad_norm = INFINITY, .learning_rate = 1e-5, .epoch = 0.333},
                         LineStyle::json),
            R"({"loss": 2.3457, "grad_norm": null, "learning_rate": 1e-05, "epoch": 0.33})");
  EXPECT_EQ(trainer_line(EvalMetrics{.loss = 2.3456789, .runtime_s = 0, .num_samples = 1, .num_steps = 1, .epoch = 1},
                         LineStyle::json),
            R"({"eval_loss": 2.3456789, "eval_runtime": 0.0, "epoch": 1.0})");
  EXPECT_EQ(trainer_line(AnswerMetrics{.exact_match = 0.8125, .f1 = 0.875}, LineStyle::json),
            R"({"exact_match": 0.8125, "f1": 0.875})");
}

}  // namespace
}  // namespace tessera
