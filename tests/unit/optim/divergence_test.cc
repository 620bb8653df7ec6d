// Tests the rule for diverging runs on recorded losses, and on thousands of drawn losses of sound and diverging runs.
#include "tessera/optim/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace tessera {
namespace {

using Verdict = LossWatch::Verdict;

struct Outcome {
  int64_t diverges_at = 0, hopeless_at = 0;  // the number of the first loss with this verdict; 0: none
  bool ends_hopeless = false;
};

Outcome watch(int64_t vocab_size, const std::vector<double>& losses) {
  LossWatch watch(vocab_size);
  Outcome outcome;
  int64_t number = 0;
  for (const double loss : losses) {
    watch.add(loss);
    ++number;
    const Verdict verdict = watch.verdict();
    if (verdict >= Verdict::diverges && outcome.diverges_at == 0) outcome.diverges_at = number;
    if (verdict == Verdict::hopeless && outcome.hopeless_at == 0) outcome.hopeless_at = number;
  }
  outcome.ends_hopeless = watch.verdict_at_end() == Verdict::hopeless;
  return outcome;
}

// Losses of the quickstart's model (2048 tokens in the vocabulary), trained with the learning rate that the name gives.
TEST(Divergence, RecordedRuns) {
  constexpr int64_t kVocabulary = 2048;
  const std::vector<double> rate_0_05{7.1,  9.58, 12,   23.4, 16.1, 15.9, 15.8, 12.2, 14.2, 15.5, 14.8,
                                      13.4, 12.4, 12.2, 18,   12.1, 9.86, 14.9, 12.6, 12,   13.5, 8.84};
  const Outcome ruined = watch(kVocabulary, rate_0_05);  // not hopeless: the model learns again from the start
  EXPECT_GT(ruined.diverges_at, 0);
  EXPECT_LE(ruined.diverges_at, 10);
  EXPECT_EQ(ruined.hopeless_at, 0);
  EXPECT_FALSE(ruined.ends_hopeless);
  const Outcome rate_1 = watch(kVocabulary, {4.68, 50.8, 427, 262, 232, 247, 202, 130, 185, 189, 244, 288});
  EXPECT_EQ(rate_1.diverges_at, 2);
  EXPECT_GT(rate_1.hopeless_at, 0);
  const Outcome rate_10 = watch(kVocabulary, {5.51, 4250, 17800, 16400, 31300, 43000, 55900});
  EXPECT_EQ(rate_10.diverges_at, 2);
  EXPECT_EQ(rate_10.hopeless_at, 5);
  for (const std::vector<double>& cut : {std::vector{5.51, 8.45e11, 3.72e15}, std::vector{5.51, 4250.0}}) {
    const Outcome short_run = watch(kVocabulary, cut);
    EXPECT_EQ(short_run.hopeless_at, 0);
    EXPECT_TRUE(short_run.ends_hopeless);
  }
  const std::vector<double> rate_0_01{4.68, 4.19, 9.32, 4.41, 7.6,  5.04, 9.21, 5.16, 7.31, 5.69,
                                      7.05, 6.52, 8.67, 7.34, 5.22, 4.94, 5.22, 4.25, 5.38, 7.54,
                                      4.96, 6.52, 7.4,  5.65, 6.82, 7.55, 5.48, 4.62};
  EXPECT_EQ(watch(kVocabulary, rate_0_01).diverges_at, 0);
}

// The evaluation at the end of a run is the only one that sees the last update.
TEST(Divergence, EvaluationAtTheEnd) {
  const auto verdict = [](const std::vector<double>& losses, double evaluated) {
    LossWatch watch(2048);  // ln(2048) = 7.6
    for (const double loss : losses) watch.add(loss);
    EXPECT_EQ(watch.verdict_at_end(), Verdict::usual);
    return watch.verdict_at_end(evaluated);
  };
  const std::vector<double> one{7.7}, many(30, 2.0);
  for (const auto& losses : {one, many}) {
    EXPECT_EQ(verdict(losses, 2), Verdict::usual);
    EXPECT_EQ(verdict(losses, 12), Verdict::usual);  // other data than in training
    EXPECT_EQ(verdict(losses, 20), Verdict::diverges);
    EXPECT_EQ(verdict(losses, 70), Verdict::diverges);
    EXPECT_EQ(verdict(losses, 200), Verdict::hopeless);
    EXPECT_EQ(verdict(losses, 6857), Verdict::hopeless);
    EXPECT_EQ(verdict(losses, 1e30), Verdict::hopeless);
  }
  EXPECT_EQ(verdict({500}, 600), Verdict::usual);  // the run began there
  LossWatch ruined(2048);
  for (const double loss : {5.0, 400.0, 900.0}) ruined.add(loss);
  EXPECT_EQ(ruined.verdict_at_end(5), Verdict::hopeless);  // an evaluation excuses nothing
  EXPECT_EQ(verdict({}, 6857), Verdict::usual);            // no step had a loss
}

TEST(Divergence, ChangesThatAreNone) {
  constexpr int64_t kVocabulary = 250'880;  // ln(250880) = 12.4
  const auto of_levels = [](std::vector<double> levels) {
    std::vector<double> losses;
    for (const double level : levels) losses.insert(losses.end(), 40, level);
    return losses;
  };
  std::vector<double> spikes(200, 2.0);
  for (size_t i = 20; i < spikes.size(); i += 20) spikes[i] = 60;
  for (const auto& losses : {of_levels({0.01, 0.2, 0.01, 0.5}), of_levels({1, 3, 5}), of_levels({12.4, 13.3, 9}),
                             spikes, of_levels({500, 300, 20, 6})}) {
    EXPECT_EQ(watch(kVocabulary, losses).diverges_at, 0) << losses.back();
  }
  // A pretrained model that is destroyed predicts no better than the frequencies of tokens. The run may recover.
  const Outcome destroyed = watch(kVocabulary, of_levels({2, 9}));
  EXPECT_GT(destroyed.diverges_at, 40);
  EXPECT_EQ(destroyed.hopeless_at, 0);
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  double between(double low, double high) { return std::uniform_real_distribution(low, high)(random_); }
  double log_between(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
  int one_of(int count) { return std::uniform_int_distribution(0, count - 1)(random_); }
  int64_t vocabulary() { return std::llround(log_between(256, 260'000)); }
  // The mean loss of `targets` targets, whose losses are exponentially distributed.
  double of_few_targets(double level, int targets) {
    double sum = 0;
    for (int i = 0; i < targets; ++i) sum += std::exponential_distribution(1 / level)(random_);
    return sum / targets;
  }
  double normal(double deviation) { return std::normal_distribution(0.0, deviation)(random_); }

 private:
  std::mt19937 random_;
};

// The losses of a run that is sound: from scratch, with a new head, from a bad initialization, fine-tuning, with nearly
// no loss, or with epochs of different difficulty; the noise comes from few targets, or is normal or log-normal.
std::vector<double> sound_run(Draw& draw, double uniform_loss) {
  enum Kind { scratch, head, bad, tuned, near_zero, epochs, kNumKinds };
  const int kind = draw.one_of(kNumKinds), length = std::array{10, 60, 300, 1000}[static_cast<size_t>(draw.one_of(4))];
  const bool learns_all = kind <= bad;
  const double floor = kind == near_zero ? 0.01 : uniform_loss * draw.between(0.001, 0.6);
  const double start = kind == scratch ? uniform_loss
                       : kind == head  ? uniform_loss * draw.between(1, 1.5)
                       : kind == bad   ? uniform_loss * draw.between(2, 50)
                                       : floor * draw.between(1, 1.5);
  const double rise = learns_all ? draw.between(0, 0.6) : 0, top_at = draw.between(2, 30);  // of the warm-up
  const double decay = draw.between(5, length);
  const int noise = draw.one_of(learns_all ? 2 : 3),
            targets = std::array{1, 2, 4, 64}[static_cast<size_t>(draw.one_of(4))];
  const double relative = draw.between(0.02, learns_all ? 0.3 : 0.5), absolute = draw.between(0.01, 1);
  double factor = 1;
  std::vector<double> losses;
  for (int step = 0; step < length; ++step) {
    double level = floor + (start - floor) * std::exp(-step / decay);
    level *= 1 + rise * std::exp(-std::pow((step - top_at) / top_at, 2));
    if (kind == near_zero && draw.between(0, 1) < 0.05) factor = draw.between(1, 20);
    if (kind == epochs && step > 0 && step % (length / 3) == 0) factor = draw.between(1, 2);
    level = kind == epochs ? std::min(level * factor, floor + 0.35 * (uniform_loss - floor)) : level * factor;
    double loss = noise == 0   ? level * std::exp(draw.normal(relative))
                  : noise == 1 ? std::max(0.0, level + draw.normal(absolute))
                               : std::min(draw.of_few_targets(level, targets), 4 * uniform_loss);
    if (draw.between(0, 1) < 0.005) loss += draw.between(0, 3) * uniform_loss;  // a spike
    losses.push_back(loss);
  }
  return losses;
}

TEST(Divergence, SoundRunsAreNeverStopped) {
  constexpr int kRuns = 4000;
  int num_warned = 0;
  for (uint32_t seed = 0; seed < kRuns; ++seed) {
    Draw draw(seed);
    const int64_t vocabulary = draw.vocabulary();
    const Outcome outcome = watch(vocabulary, sound_run(draw, std::log(static_cast<double>(vocabulary))));
    EXPECT_EQ(outcome.hopeless_at, 0) << seed;
    EXPECT_FALSE(outcome.ends_hopeless) << seed;
    num_warned += outcome.diverges_at > 0;
  }
  EXPECT_LT(num_warned, kRuns / 100);
}

TEST(Divergence, DivergingRunsAreStopped) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Draw draw(seed);
    const int64_t vocabulary = draw.vocabulary();
    const double uniform_loss = std::log(static_cast<double>(vocabulary));
    const double top = uniform_loss * draw.log_between(5, 1e12), growth = draw.between(1.1, 50);
    const double relative = draw.between(0.02, 0.5);
    const int64_t sound_steps = std::array{1, 5, 50, 200}[static_cast<size_t>(draw.one_of(4))];
    double level = uniform_loss * draw.between(0.1, 1);
    std::vector<double> losses;
    for (int64_t step = 0; step < sound_steps + 150; ++step) {
      if (step >= sound_steps) level = std::min(top, level * growth);
      losses.push_back(level * std::exp(draw.normal(relative)));
    }
    const Outcome outcome = watch(vocabulary, losses);
    EXPECT_GT(outcome.diverges_at, 0) << seed;
    EXPECT_GE(outcome.hopeless_at, outcome.diverges_at) << seed;
    EXPECT_LE(outcome.hopeless_at, sound_steps + 100) << seed;
  }
}

// A restored watch gives the same verdicts as one that was not interrupted.
TEST(Divergence, TheStateIsComplete) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    const auto losses = sound_run(draw, std::log(400.0));
    LossWatch whole(400), part(400);
    const auto cut = static_cast<size_t>(draw.one_of(static_cast<int>(losses.size())));
    for (size_t i = 0; i < losses.size(); ++i) {
      if (i == cut) {
        LossWatch next(400);
        next.restore(part.state());
        part = next;
      }
      whole.add(losses[i]), part.add(losses[i]);
      ASSERT_EQ(whole.verdict(), part.verdict());
      ASSERT_EQ(whole.state(), part.state());
    }
  }
}

}  // namespace
}  // namespace tessera
