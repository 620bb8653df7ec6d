#include "ops_testing.h"

namespace tessera::testing {
namespace {

constexpr int64_t kShapes[][2] = {{1, 1}, {1, 7}, {2, 64}, {37, 129}, {130, 48}, {5, 1031}};
constexpr double kEpsilon = 1e-5;

template <typename T>
struct RmsNormTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RmsNormTest, FloatTypes);

TYPED_TEST(RmsNormTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const auto& [rows, channels] : kShapes) {
    auto x = random_values<T>(rows * channels, 1), weight = random_values<T>(channels, 2);
    Rig rig(3);
    std::vector<T> y(x.size()), rstd(static_cast<size_t>(rows)), in_place = x;
    rig->rms_norm_forward({.x = view(x, {rows, channels}),
                           .weight = view(weight),
                           .epsilon = kEpsilon,
                           .y = view(y, {rows, channels}),
                           .stats = view(rstd, {rows, 1})});
    rig->rms_norm_forward({.x = view(in_place, {rows, channels}),
                           .weight = view(weight),
                           .epsilon = kEpsilon,
                           .y = view(in_place, {rows, channels})});
    EXPECT_EQ(in_place, y);
    for (int64_t n = 0; n < rows; ++n) {
      const T* row = x.data() + n * channels;
      double squares = 0;
      for (int64_t c = 0; c < channels; ++c) squares += std::pow(static_cast<double>(row[c]), 2);
      const double expected = 1 / std::sqrt(squares / static_cast<double>(channels) + kEpsilon);
      // The sum of C squares (C channels) in 16 vector lanes has a relative error of at most ε·(C/16 + 16), because all
      // terms are positive.
      const double tolerance = epsilon<T>() * (static_cast<double>(channels) / 16 + 16) * expected;
      ASSERT_NEAR(rstd[static_cast<size_t>(n)], expected, tolerance);
      for (int64_t c = 0; c < channels; ++c) {
        ASSERT_NEAR(y[static_cast<size_t>(n * channels + c)],
                    static_cast<double>(row[c]) * expected * static_cast<double>(weight[static_cast<size_t>(c)]),
                    2 * tolerance);
      }
    }
  }
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  for (const auto& [rows, channels] : kShapes) {
    Rig rig(2);
    auto x = random_values(rows * channels, 1), weight = random_values(channels, 2);
    auto residual = random_values(rows * channels, 4), r = random_values(rows * channels, 5);
    std::vector<double> y(x.size()), rstd(static_cast<size_t>(rows)), d_x(x.size()), d_weight(weight.size());
    const Shape shape{rows, channels};
    const auto value = [&] {
      rig->rms_norm_forward({.x = view(x, shape),
                             .weight = view(weight),
                             .epsilon = kEpsilon,
                             .y = view(y, shape),
                             .stats = view(rstd, {rows, 1})});
      return dot(y, r);
    };
    value();
    const auto expected = y;
    std::fill(y.begin(), y.end(), 7);
    rig->rms_norm_backward({.d_y = view(r, shape),
                            .x = view(x, shape),
                            .weight = view(weight),
                            .stats = view(rstd, {rows, 1}),
                            .d_x = view(d_x, shape),
                            .d_weight = view(d_weight),
                            .y = view(y, shape)});
    EXPECT_EQ(y, expected);
    const auto d_weight_alone = d_weight;
    expect_gradient(x, d_x, value, "x");
    expect_gradient(weight, d_weight_alone, value, "weight");
    // rms_norm_backward overwrites d_x with the gradient, plus the residual if the call has one. d_x may be the array
    // of the residual (next call) or of d_y (the call after it). Each call adds to d_weight: three calls,
    // with the call above.
    value();
    auto in_place = residual;
    rig->rms_norm_backward({.d_y = view(r, shape),
                            .x = view(x, shape),
                            .weight = view(weight),
                            .stats = view(rstd, {rows, 1}),
                            .residual = view(in_place, shape),
                            .d_x = view(in_place, shape),
                            .d_weight = view(d_weight)});
    auto d_y = r;
    rig->rms_norm_backward({.d_y = view(d_y, shape),
                            .x = view(x, shape),
                            .weight = view(weight),
                            .stats = view(rstd, {rows, 1}),
                            .d_x = view(d_y, shape),
                            .d_weight = view(d_weight)});
    EXPECT_EQ(d_y, d_x);
    for (size_t i = 0; i < d_x.size(); ++i)
      ASSERT_NEAR(in_place[i], d_x[i] + residual[i], 1e-12 * (1 + std::abs(d_x[i])));
    for (size_t i = 0; i < weight.size(); ++i) {
      ASSERT_NEAR(d_weight[i], 3 * d_weight_alone[i], 1e-12 * (1 + std::abs(d_weight_alone[i])) * 64);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
