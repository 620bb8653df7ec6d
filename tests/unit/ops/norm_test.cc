#include "ops_testing.h"

namespace tessera::testing {
namespace {

constexpr int64_t kShapes[][2] = {{1, 1}, {1, 7}, {2, 64}, {3, 100}, {37, 129}, {64, 48}, {5, 1031}};

template <typename T>
struct LayerNormTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LayerNormTest, FloatTypes);

TYPED_TEST(LayerNormTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const auto& [rows, channels] : kShapes) {
    for (double offset : {0.0, 30.0}) {
      auto x = random_values<T>(rows * channels, 1), weight = random_values<T>(channels, 2);
      auto bias = random_values<T>(channels, 3);
      for (T& value : x) value += static_cast<T>(offset);
      std::vector<double> expected, expected_stats;
      for (int64_t n = 0; n < rows; ++n) {
        double mean = 0, variance = 0;
        const T* row = x.data() + n * channels;
        for (int64_t c = 0; c < channels; ++c) mean += static_cast<double>(row[c]) / static_cast<double>(channels);
        for (int64_t c = 0; c < channels; ++c) {
          variance += std::pow(static_cast<double>(row[c]) - mean, 2) / static_cast<double>(channels);
        }
        const double rstd = 1 / std::sqrt(variance + 1e-5);
        expected_stats.insert(expected_stats.end(), {mean, rstd});
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
          expected.push_back((static_cast<double>(row[c]) - mean) * rstd * static_cast<double>(weight[c]) +
                             static_cast<double>(bias[c]));
        }
      }
      Rig rig(3);
      std::vector<T> y(x.size()), stats(static_cast<size_t>(2 * rows)), in_place = x;
      rig->layer_norm_forward({.x = view(x, {rows, channels}),
                               .weight = view(weight),
                               .bias = view(bias),
                               .epsilon = 1e-5,
                               .y = view(y, {rows, channels}),
                               .stats = view(stats, {rows, 2})});
      rig->layer_norm_forward({.x = view(in_place, {rows, channels}),
                               .weight = view(weight),
                               .bias = view(bias),
                               .epsilon = 1e-5,
                               .y = view(in_place, {rows, channels})});
      EXPECT_EQ(in_place, y);
      // The C = channels values of a row are summed in 16 vector lanes, so the mean has an error of about
      // ε·(C/16 + 16)·|x|. To compute y, rstd (316 for C = 1) multiplies x − mean, and therefore also this error.
      const double magnitude = 1 + offset, lanes = static_cast<double>(channels) / 16 + 16;
      for (int64_t n = 0; n < rows; ++n) {
        const double rstd = expected_stats[static_cast<size_t>(2 * n + 1)];
        for (int64_t i = n * channels; i < (n + 1) * channels; ++i) {
          ASSERT_NEAR(y[static_cast<size_t>(i)], expected[static_cast<size_t>(i)],
                      4 * epsilon<T>() * lanes * magnitude * rstd);
        }
        ASSERT_NEAR(stats[static_cast<size_t>(2 * n)], expected_stats[static_cast<size_t>(2 * n)],
                    epsilon<T>() * lanes * magnitude);
      }
    }
  }
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  for (const auto& [rows, channels] : kShapes) {
    if (channels == 1) continue;  // y does not depend on x, so all differences are rounding errors
    Rig rig(2);
    auto x = random_values(rows * channels, 1), weight = random_values(channels, 2), bias = random_values(channels, 3);
    auto residual = random_values(rows * channels, 4);
    auto r = random_values(rows * channels, 5);
    std::vector<double> y(x.size()), stats(static_cast<size_t>(2 * rows)), d_x(x.size());
    std::vector<double> d_weight(weight.size()), d_bias(bias.size());
    const Shape shape{rows, channels};
    auto value = [&] {
      rig->layer_norm_forward({.x = view(x, shape),
                               .weight = view(weight),
                               .bias = view(bias),
                               .epsilon = 1e-5,
                               .y = view(y, shape),
                               .stats = view(stats, {rows, 2})});
      return dot(y, r);
    };
    value();
    auto again = y;
    std::fill(again.begin(), again.end(), 7);
    rig->layer_norm_backward({.d_y = view(r, shape),
                              .x = view(x, shape),
                              .weight = view(weight),
                              .bias = view(bias),
                              .stats = view(stats, {rows, 2}),
                              .d_x = view(d_x, shape),
                              .d_weight = view(d_weight),
                              .d_bias = view(d_bias),
                              .y = view(again, shape)});
    EXPECT_EQ(again, y);
    expect_gradient(x, d_x, value, "x");
    expect_gradient(weight, d_weight, value, "weight");
    expect_gradient(bias, d_bias, value, "bias");

    // Checks calls that add a residual and overwrite one of their inputs. The result of the first call overwrites the
    // residual. The result of the second call overwrites d_y.
    auto d_stream = residual, d_y = r;
    rig->layer_norm_backward({.d_y = view(r, shape),
                              .x = view(x, shape),
                              .weight = view(weight),
                              .stats = view(stats, {rows, 2}),
                              .residual = view(d_stream, shape),
                              .d_x = view(d_stream, shape),
                              .d_weight = view(d_weight),
                              .d_bias = view(d_bias)});
    rig->layer_norm_backward({.d_y = view(d_y, shape),
                              .x = view(x, shape),
                              .weight = view(weight),
                              .stats = view(stats, {rows, 2}),
                              .residual = view(residual, shape),
                              .d_x = view(d_y, shape),
                              .d_weight = view(d_weight),
                              .d_bias = view(d_bias)});
    EXPECT_EQ(d_stream, d_y);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(d_stream[i], residual[i] + d_x[i], 1e-12);
  }
}

TEST(LayerNorm, FloatGradientsFollowDouble) {
  const int64_t rows = 40, channels = 1024;
  Rig rig(3);
  const auto x = random_values<float>(rows * channels, 1), weight = random_values<float>(channels, 2);
  const auto d_y = random_values<float>(rows * channels, 3);
  std::vector<double> expected[3];
  auto run = [&](auto zero, auto& d_x, auto& d_weight, auto& d_bias) {
    using T = decltype(zero);
    auto xs = converted<T>(x), ws = converted<T>(weight), ds = converted<T>(d_y);
    std::vector<T> bias(ws.size()), y(xs.size()), stats(static_cast<size_t>(2 * rows));
    const Shape shape{rows, channels};
    d_x.resize(xs.size()), d_weight.resize(ws.size()), d_bias.resize(ws.size());
    rig->layer_norm_forward({.x = view(xs, shape),
                             .weight = view(ws),
                             .bias = view(bias),
                             .epsilon = 1e-5,
                             .y = view(y, shape),
                             .stats = view(stats, {rows, 2})});
    rig->layer_norm_backward({.d_y = view(ds, shape),
                              .x = view(xs, shape),
                              .weight = view(ws),
                              .stats = view(stats, {rows, 2}),
                              .d_x = view(d_x, shape),
                              .d_weight = view(d_weight),
                              .d_bias = view(d_bias)});
  };
  std::vector<float> d_x, d_weight, d_bias;
  run(double{}, expected[0], expected[1], expected[2]);
  run(float{}, d_x, d_weight, d_bias);
  // The kernels compute every gradient from sums. The magnitude of each term of a sum is at most about 2. For d_x, the
  // sums have `channels` terms, and 16 vector lanes share them. For d_weight and d_bias, the sums have `rows` terms.
  expect_close(d_x, expected[0], 8 * epsilon<float>() * (static_cast<double>(channels) / 16 + 16), "d_x");
  expect_close(d_weight, expected[1], 8 * epsilon<float>() * static_cast<double>(rows), "d_weight");
  expect_close(d_bias, expected[2], 8 * epsilon<float>() * static_cast<double>(rows), "d_bias");
}

}  // namespace
}  // namespace tessera::testing
