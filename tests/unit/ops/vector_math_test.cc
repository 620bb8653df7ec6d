#include "tessera/ops/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace tessera::cpu {
namespace {

// Returns |actual − expected| in ulps of the float that is nearest to `expected`.
double ulps(float actual, double expected) {
  const float nearest = static_cast<float>(expected);
  const double ulp = std::abs(static_cast<double>(std::nextafter(nearest, std::numeric_limits<float>::infinity())) -
                              static_cast<double>(nearest));
  return std::abs(static_cast<double>(actual) - expected) / ulp;
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (float x = -87.3f; x < 87.0f; x += 0.00137f) worst = std::max(worst, ulps(exp(x), std::exp(double{x})));
  EXPECT_LE(worst, 2.0);
}

TEST(VectorMath, ExpAtTheEndsOfItsRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-infinity), 0.0f);
  EXPECT_EQ(exp(-88.0f), 0.0f);
  EXPECT_GT(exp(infinity), 6e37f);
  EXPECT_TRUE(std::isnormal(1 / exp(infinity)));
  EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, ReciprocalIsWithinTwoUlp) {
  double worst = 0;
  for (float x = 1; x < 0x1p126f; x *= 1.00037f) worst = std::max(worst, ulps(reciprocal(x), 1 / double{x}));
  EXPECT_LE(worst, 2.0);
  EXPECT_TRUE(std::isnan(reciprocal(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, LogIsWithinTwoUlpAwayFromOne) {
  for (float x = 0x1p-25f; x < 4.0f; x *= 1.00071f) {
    const double expected = std::log(double{x});
    ASSERT_NEAR(log_positive(x), expected, 2 * 0x1p-23 * std::max(std::abs(expected), 1e-3)) << x;
  }
}

TEST(VectorMath, SinCosOfTurns) {
  constexpr double kTwoPi = 6.283185307179586;
  for (float turns = -0.5f; turns <= 0.5f; turns += 0.000173f) {
    const SinCos actual = sin_cos_turns(turns);
    ASSERT_NEAR(actual.sin, std::sin(kTwoPi * double{turns}), 1e-6) << turns;
    ASSERT_NEAR(actual.cos, std::cos(kTwoPi * double{turns}), 1e-6) << turns;
  }
}

// The published tanh formula of GELU, in double.
double reference_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456 * x * (1 + 0.044715 * x * x)));
}

TEST(VectorMath, GeluEqualsTheTanhFormula) {
  for (double x = -12; x < 12; x += 0.0037) {
    // In float, exp has an error of up to 2 ulp, and rounding its argument adds another error. For |x| ≤ 5, the
    // argument is at most 3.4·|x|. For larger |x|, the exponential is too small to matter, or so large that the result
    // is almost 0.
    ASSERT_NEAR(gelu(static_cast<float>(x)), reference_gelu(static_cast<float>(x)), 4e-7 * std::max(1.0, std::abs(x)));
    ASSERT_NEAR(gelu(x), reference_gelu(x), 1e-15 * std::max(1.0, std::abs(x)));
  }
}

TEST(VectorMath, GeluDerivative) {
  for (double x = -8; x < 8; x += 0.0137) {
    const double slope = (reference_gelu(x + 1e-5) - reference_gelu(x - 1e-5)) / 2e-5;
    ASSERT_NEAR(gelu_derivative(x), slope, 1e-9);
    ASSERT_NEAR(gelu_derivative(static_cast<float>(x)), gelu_derivative(x), 2e-6);
  }
}

}  // namespace
}  // namespace tessera::cpu
