// Tests how tokens are drawn at random. The reference, distribution(), computes the probability of each token from the
// definition, in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ops_testing.h"
#include "tessera/ops/sampling_numbers.h"

namespace tessera::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the probability of each token, computed in the same order as in transformers: temperature, top_k, a softmax
// for top_p, and the final softmax. If top_k or top_p keeps a token, it also keeps all tokens with the same logit.
std::vector<double> distribution(const std::vector<double>& logits, const Sampling& sampling) {
  const size_t V = logits.size();
  std::vector<double> scores(V);
  for (size_t i = 0; i < V; ++i) scores[i] = std::isnan(logits[i]) ? -kInfinity : logits[i] / sampling.temperature;
  if (sampling.top_k > 0 && sampling.top_k < std::ssize(scores)) {
    std::vector<double> sorted = scores;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const double last = sorted[static_cast<size_t>(sampling.top_k) - 1];
    for (double& score : scores) score = score < last ? -kInfinity : score;
  }
  const auto softmax = [&] {
    const double most = *std::max_element(scores.begin(), scores.end());
    std::vector<double> p(V);
    double sum = 0;
    for (size_t i = 0; i < V; ++i) sum += p[i] = std::exp(scores[i] - most);
    for (double& x : p) x /= sum;
    return p;
  };
  const std::vector<double> p = softmax();
  if (sampling.top_p < 1) {
    std::map<double, double, std::greater<>> mass_of_score;  // in descending order
    for (size_t i = 0; i < V; ++i) mass_of_score[scores[i]] += p[i];
    double before = 0, last = kInfinity;
    for (const auto& [score, mass] : mass_of_score) {
      if (before >= sampling.top_p && last < kInfinity) break;
      last = score;
      before += mass;
    }
    for (double& score : scores) score = score < last ? -kInfinity : score;
  }
  return softmax();
}

Sampling draw_sampling(RandomStream& random, int64_t vocabulary) {
  Sampling sampling;
  const double temperatures[] = {0.01, 0.3, 0.7, 1, 1.5, 10};
  sampling.temperature = temperatures[random.next_below(6)];
  if (random.next_below(2))
    sampling.top_k = 1 + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(vocabulary + 2)));
  const double masses[] = {0, 0.1, 0.5, 0.9, 0.99};
  if (random.next_below(2)) sampling.top_p = masses[random.next_below(5)];
  return sampling;
}

// Returns logits with a nearly normal distribution. If `steps` > 0, the logits are multiples of 1/steps, so many are
// equal.
template <typename T>
std::vector<T> draw_logits(RandomStream& random, int64_t count, int steps) {
  std::vector<T> logits(static_cast<size_t>(count));
  for (T& x : logits) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += 6 * random.next_uniform() - 3;
    x = static_cast<T>(steps > 0 ? std::round(sum * steps) / steps : sum);
  }
  return logits;
}

template <typename T>
struct SamplingTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SamplingTest, FloatTypes);

// The cumulative probability of an id is the sum of the reference's probabilities of ids 0 to this id. The kernel must
// draw the first id whose cumulative probability exceeds the random number draw / 2^64.
TYPED_TEST(SamplingTest, InvertsTheCumulativeDistribution) {
  using T = TypeParam;
  RandomStream random(7, 1);
  for (int turn = 0; turn < 400; ++turn) {
    const int64_t V = turn % 40 == 0 ? 20000 : 1 + static_cast<int64_t>(random.next_below(300));
    const int64_t rows = V > 1000 ? 2 : 5;
    const int steps = static_cast<int>(random.next_below(3)) * 4;
    const std::vector<T> logits = draw_logits<T>(random, rows * V, steps);
    const Sampling sampling = draw_sampling(random, V);
    std::vector<int64_t> draws(static_cast<size_t>(rows));
    for (int64_t& draw : draws) draw = static_cast<int64_t>(random.next_u64());
    std::vector<int32_t> ids(static_cast<size_t>(rows), -1);
    Rig rig(1 + turn % 3);
    auto copy = logits;
    rig->sample_rows(view(copy, {rows, V}), view(draws), sampling, view(ids));
    EXPECT_EQ(copy, logits);
    for (int64_t row = 0; row < rows; ++row) {
      const auto p = distribution({logits.begin() + row * V, logits.begin() + (row + 1) * V}, sampling);
      const auto id = static_cast<size_t>(ids[static_cast<size_t>(row)]);
      ASSERT_LT(id, p.size());
      double before = 0;
      for (size_t i = 0; i < id; ++i) before += p[i];
      const double at = static_cast<double>(static_cast<uint64_t>(draws[static_cast<size_t>(row)])) * 0x1p-64;
      // The kernel rounds each distance (ops/sampling_numbers.h) down to a multiple of 2^-26, and never draws a token
      // with a distance of 32 or more. The kernel's probabilities therefore differ from the reference by about 2^-26.
      // kError is four times as large.
      constexpr double kError = 0x1p-24;
      ASSERT_GT(p[id], 0) << turn << " row " << row << " id " << id << " of " << V << ": T " << sampling.temperature
                          << " top_k " << sampling.top_k << " top_p " << sampling.top_p;
      ASSERT_LE(before, at + kError) << turn;
      ASSERT_GE(before + p[id], at - kError) << turn;
    }
  }
}

// With one seed, draws 600 texts of 100 tokens. A chi-squared test compares the counts of the drawn tokens with the
// reference. The bound of this test is 4.5 standard deviations above the mean.
TEST(Sampling, CountsFollowTheDistribution) {
  RandomStream random(11, 2);
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 2}, Sampling{.temperature = 0.5}, Sampling{.top_k = 7},
        Sampling{.top_p = 0.7}, Sampling{.temperature = 0.8, .top_k = 20, .top_p = 0.9}}) {
    constexpr int64_t V = 60, kDraws = 60000, kRows = 1000;
    const std::vector<float> row = draw_logits<float>(random, V, 0);
    std::vector<float> logits;
    for (int64_t i = 0; i < kRows; ++i) logits.insert(logits.end(), row.begin(), row.end());
    std::vector<double> counts(V);
    Rig rig(2);
    std::vector<int64_t> draws(kRows);
    std::vector<int32_t> ids(kRows);
    for (int64_t first = 0; first < kDraws; first += kRows) {
      for (int64_t i = 0; i < kRows; ++i) {
        draws[static_cast<size_t>(i)] = static_cast<int64_t>(sampling_draw(3, (first + i) / 100, (first + i) % 100));
      }
      rig->sample_rows(view(logits, {kRows, V}), view(draws), sampling, view(ids));
      for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
    }
    const std::vector<double> p = distribution({row.begin(), row.end()}, sampling);
    double chi = 0, rare = 0, rare_count = 0;
    int degrees = -1;
    const auto add = [&](double expected, double count) {
      chi += (count - expected) * (count - expected) / expected;
      ++degrees;
    };
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) {
        EXPECT_EQ(counts[i], 0);
      } else if (p[i] * kDraws < 10) {  // all tokens with fewer than 10 expected draws count as one token
        rare += p[i] * kDraws;
        rare_count += counts[i];
      } else {
        add(p[i] * kDraws, counts[i]);
      }
    }
    if (rare > 1) add(rare, rare_count);
    if (degrees > 0) {
      EXPECT_LT(chi, degrees + 4.5 * std::sqrt(2.0 * degrees)) << degrees;
    }
  }
}

TEST(Sampling, OfUnusualLogits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  // Returns the ids that are drawn for 64 evenly spaced random numbers.
  const auto ids_of = [](std::vector<float> row, const Sampling& sampling) {
    std::vector<bool> seen(row.size());
    Rig rig;
    for (uint64_t turn = 0; turn < 64; ++turn) {
      std::vector<int64_t> draws{static_cast<int64_t>(turn << 58)};
      std::vector<int32_t> ids{-1};
      rig->sample_rows(view(row, {1, std::ssize(row)}), view(draws), sampling, view(ids));
      seen.at(static_cast<size_t>(ids[0])) = true;
    }
    std::vector<int> found;
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i]) found.push_back(static_cast<int>(i));
    }
    return found;
  };
  using Ids = std::vector<int>;
  EXPECT_EQ(ids_of({kNan, kNan, kNan}, {}), Ids{0});
  EXPECT_EQ(ids_of({-kInf, -kInf}, {.top_k = 1, .top_p = 0.5}), Ids{0});
  EXPECT_EQ(ids_of({kNan, 1, kNan, 1}, {}), (Ids{1, 3}));
  EXPECT_EQ(ids_of({kNan, 1, -kInf, 1}, {.top_k = 3}), (Ids{1, 3}));
  EXPECT_EQ(ids_of({5, kInf, kInf, 7}, {}), (Ids{1, 2}));
  EXPECT_EQ(ids_of({0.0f, -0.0f, -100}, {.top_k = 1}), (Ids{0, 1}));                // 0 and -0 are equal
  EXPECT_EQ(ids_of({1, 2, 2, 1.999f}, {.temperature = 1e-30}), (Ids{1, 2}));        // nearly greedy
  EXPECT_EQ(ids_of({1, 2, 3, 4}, {.temperature = 1e6}), (Ids{0, 1, 2, 3}));         // nearly uniform
  EXPECT_EQ(ids_of({1, 2, 3, 3}, {.top_p = 0}), (Ids{2, 3}));                       // keeps only the most likely ids
  EXPECT_EQ(ids_of({1, 2, 2, 3}, {.top_k = 2}), (Ids{1, 2, 3}));                    // keeps ids 1 and 2: equally likely
  EXPECT_EQ(ids_of({-3e38f, 3e38f, 3e38f}, {.temperature = 1e-300}), (Ids{1, 2}));  // distances overflow
  EXPECT_EQ(ids_of({1, 2, 3, 4}, {.temperature = 1e6, .top_k = 99}), (Ids{0, 1, 2, 3}));  // k exceeds the vocabulary
}

TEST(Sampling, DrawsDependOnSeedTextAndPosition) {
  std::map<uint64_t, int> seen;
  for (uint64_t seed : {0ull, 1ull, 42ull, ~0ull}) {
    for (int64_t text : {0, 1, 2, 1000000}) {
      for (int64_t position = 0; position < 50; ++position) {
        const uint64_t draw = sampling_draw(seed, text, position);
        EXPECT_EQ(draw, sampling_draw(seed, text, position));
        EXPECT_EQ(++seen[draw], 1);
      }
    }
  }
}

TEST(Sampling, PointsAreTheHighHalfOfTheProduct) {
  RandomStream random(5, 3);
  __extension__ using Wide = unsigned __int128;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t draw = random.next_u64() >> random.next_below(64),
                   total = random.next_u64() >> random.next_below(64);
    ASSERT_EQ(sampling_point(draw, total), static_cast<uint64_t>(static_cast<Wide>(draw) * total >> 64));
  }
}

}  // namespace
}  // namespace tessera::testing
