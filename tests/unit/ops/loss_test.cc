#include <algorithm>
#include <limits>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

// Rows and vocabulary. The CPU kernels divide a row into chunks of 8192 columns.
constexpr int64_t kShapes[][2] = {{1, 1}, {1, 5}, {1, 20000}, {2, 8192}, {2, 8193}, {7, 100}, {33, 1001}};

template <typename T>
struct LossTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LossTest, FloatTypes);

TYPED_TEST(LossTest, EqualsTheDefinition) {
  using T = TypeParam;
  for (const auto& [rows, vocabulary] : kShapes) {
    for (int threads : {1, 3}) {
      auto logits = random_values<T>(rows * vocabulary, 1);
      for (T& x : logits) x *= T(20);
      std::vector<int32_t> targets;
      for (int64_t i = 0; i < rows; ++i)
        targets.push_back(static_cast<int32_t>((i * 7919 + vocabulary - 1) % vocabulary));
      double expected_loss = 1.5;
      std::vector<double> expected;
      for (int64_t i = 0; i < rows; ++i) {
        const T* row = logits.data() + i * vocabulary;
        double sum = 0;
        for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(static_cast<double>(row[j]));
        const auto target = targets[static_cast<size_t>(i)];
        expected_loss += std::log(sum) - static_cast<double>(row[target]);
        for (int64_t j = 0; j < vocabulary; ++j) {
          expected.push_back((std::exp(static_cast<double>(row[j])) / sum - (j == target)) * 0.125);
        }
      }
      Rig rig(threads);
      std::vector<double> loss{1.5}, loss_alone{1.5};
      auto copy = logits;
      rig->softmax_cross_entropy(view(logits, {rows, vocabulary}), view(targets), 0.125, view(loss));
      rig->softmax_cross_entropy(view(copy, {rows, vocabulary}), view(targets), 0, view(loss_alone));
      EXPECT_EQ(loss, loss_alone);
      // The tolerance is 48 times ε, the distance from 1 to the next value of T. An exponential has an error of 2 ulp.
      // Its argument (magnitude below 50) and the logarithm of the row's sum are rounded to T, which adds a relative
      // error of up to 24 ε. Row sums are in double.
      const double relative = (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52) * 48;
      EXPECT_NEAR(loss[0], expected_loss, static_cast<double>(rows) * relative);
      expect_close(logits, expected, 0.125 * relative, "d_logits");
    }
  }
}

TEST(Loss, GradientsMatchFiniteDifferences) {
  const int64_t rows = 5, vocabulary = 33;
  Rig rig(2);
  auto logits = random_values(rows * vocabulary, 1);
  std::vector<int32_t> targets{0, 32, 7, 7, 20};
  const auto value = [&] {
    auto copy = logits;
    std::vector<double> loss{0};
    rig->softmax_cross_entropy(view(copy, {rows, vocabulary}), view(targets), 0, view(loss));
    return 0.5 * loss[0];
  };
  auto d_logits = logits;
  std::vector<double> loss{0};
  rig->softmax_cross_entropy(view(d_logits, {rows, vocabulary}), view(targets), 0.5, view(loss));
  expect_gradient(logits, d_logits, value, "logits");
}

TEST(Loss, DoesNotDependOnTheThreads) {
  const int64_t rows = 2, vocabulary = 30000;
  const auto logits = random_values<float>(rows * vocabulary, 1);
  std::vector<int32_t> targets{29999, 3};
  std::vector<float> first;
  double first_loss = 0;
  for (int threads : {1, 2, 3}) {
    Rig rig(threads);
    auto d_logits = logits;
    std::vector<double> loss{0};
    rig->softmax_cross_entropy(view(d_logits, {rows, vocabulary}), view(targets), 1, view(loss));
    if (first.empty()) first = d_logits, first_loss = loss[0];
    EXPECT_EQ(d_logits, first);
    EXPECT_EQ(loss[0], first_loss);
  }
}

TEST(Loss, LargeLogitsDoNotOverflow) {
  Rig rig;
  std::vector<float> logits{1e4f, -1e4f, 0, 1e30f, 0, 0};
  std::vector<int32_t> targets{0, 0};
  std::vector<double> loss{0};
  rig->softmax_cross_entropy(view(logits, {2, 3}), view(targets), 1, view(loss));
  EXPECT_FLOAT_EQ(static_cast<float>(loss[0]), 1e30f * 0 + 0);
  EXPECT_EQ(logits[0], 0);
  EXPECT_EQ(logits[1], 0);
}

// A mask sets logits to −∞. The loss must equal the loss of a row without the masked logits. The test masks one
// logit, more than one chunk of the row (9000), more than two chunks (20000), or all logits except the target's.
TEST(Loss, LogitsOfMinusInfinityDoNotCount) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t vocabulary = 30000;
  for (const int64_t masked : {1, 9000, 20000, 29999}) {
    Rig rig;
    auto logits = random_values<float>(vocabulary, 1);
    const std::vector<float> kept(logits.begin() + masked, logits.end());
    std::fill_n(logits.begin(), masked, kNone);
    std::vector<float> few = kept;
    std::vector<int32_t> target{static_cast<int32_t>(vocabulary - 1)},
        target_of_few{static_cast<int32_t>(kept.size() - 1)};
    std::vector<double> loss{0}, loss_of_few{0};
    rig->softmax_cross_entropy(view(logits, {1, vocabulary}), view(target), 1, view(loss));
    rig->softmax_cross_entropy(view(few, {1, std::ssize(few)}), view(target_of_few), 1, view(loss_of_few));
    EXPECT_NEAR(loss[0], loss_of_few[0], 1e-6 * std::abs(loss_of_few[0]) + 1e-12);
    for (int64_t i = 0; i < masked; ++i) ASSERT_EQ(logits[static_cast<size_t>(i)], 0);
    logits[3] = std::numeric_limits<float>::quiet_NaN();  // a NaN must reach the loss
    rig->softmax_cross_entropy(view(logits, {1, vocabulary}), view(target), 1, view(loss));
    EXPECT_TRUE(std::isnan(loss[0]));
  }
}

TYPED_TEST(LossTest, ArgmaxFindsTheFirstMaximum) {
  using T = TypeParam;
  for (const auto& [rows, vocabulary] : kShapes) {
    for (int threads : {1, 3}) {
      Rig rig(threads);
      auto logits = random_values<T>(rows * vocabulary, 5);
      std::vector<int32_t> ids(static_cast<size_t>(rows)), expected;
      for (int64_t i = 0; i < rows; ++i) {
        T* row = logits.data() + i * vocabulary;
        row[vocabulary * i / rows] = row[vocabulary - 1] = row[vocabulary / 2] = T(2);
        int32_t best = 0;
        for (int32_t j = 1; j < vocabulary; ++j) best = row[j] > row[best] ? j : best;
        expected.push_back(best);
      }
      rig->argmax_rows(view(logits, {rows, vocabulary}), view(ids));
      EXPECT_EQ(ids, expected);
    }
  }
}

// The scratch has space for the losses of 2^18 rows, so softmax_cross_entropy processes the rows in three parts.
TEST(Loss, OfAnyNumberOfRows) {
  Rig rig;
  const int64_t rows = 700001, vocabulary = 2;
  auto logits = random_values<float>(rows * vocabulary, 6);
  std::vector<int32_t> ids(static_cast<size_t>(rows)), targets(static_cast<size_t>(rows)), expected_ids;
  double expected = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const float *row = logits.data() + i * vocabulary, difference = row[1] - row[0];
    targets[static_cast<size_t>(i)] = static_cast<int32_t>(i % 3 == 0);
    expected += std::log1p(std::exp(static_cast<double>(i % 3 == 0 ? -difference : difference)));
    expected_ids.push_back(difference > 0);
  }
  rig->argmax_rows(view(logits, {rows, vocabulary}), view(ids));
  EXPECT_EQ(ids, expected_ids);
  std::vector<double> loss{0};
  rig->softmax_cross_entropy(view(logits, {rows, vocabulary}), view(targets), 1, view(loss));
  EXPECT_NEAR(loss[0], expected, 4e-7 * expected);  // exponentials and differences of logits are rounded to f32
}

TEST(Loss, ArgmaxOfNansIsAValidId) {
  Rig rig;
  std::vector<float> logits(10, std::numeric_limits<float>::quiet_NaN());
  std::vector<int32_t> ids(2);
  rig->argmax_rows(view(logits, {2, 5}), view(ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 0}));
  std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  rig->argmax_rows(view(logits, {2, 5}), view(ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 0}));
}

}  // namespace
}  // namespace tessera::testing
