#include "ops_testing.h"

namespace tessera::testing {
namespace {

constexpr int64_t kShapes[][2] = {{1, 1}, {3, 7}, {37, 129}, {130, 16}};
constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh};

double exact(Activation activation, double x) {
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  // 0.79788456 is √(2/π), with the same digits as in Hugging Face Transformers.
  return 0.5 * x * (1 + std::tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

template <typename T>
struct GatedTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GatedTest, FloatTypes);

TYPED_TEST(GatedTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Activation activation : kActivations) {
    for (const auto& [rows, F] : kShapes) {
      auto gate_up = random_values<T>(rows * 2 * F, 1);
      // These values make the exponential tiny or huge. silu(−95) computes exp(95), which exceeds the range of f32.
      for (T& x : gate_up) x *= T(20);
      gate_up[0] = T(-95), gate_up.back() = T(1);
      std::vector<T> h(static_cast<size_t>(rows * F), T(NAN));
      Rig rig(2);
      rig->gated_forward(view(gate_up, {rows, 2 * F}), activation, view(h, {rows, F}));
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t j = 0; j < F; ++j) {
          const auto gate = static_cast<double>(gate_up[static_cast<size_t>(n * 2 * F + j)]),
                     up = static_cast<double>(gate_up[static_cast<size_t>(n * 2 * F + F + j)]);
          // exp and the reciprocal each have an error of at most 2 ulp. These errors are proportional to the result:
          // 16·ε·|expected| covers them. gelu also rounds the argument of its exponential. The rounding error of a
          // large argument is large, but it changes the result little: 64·ε·|up| covers this change.
          const double expected = exact(activation, gate) * up;
          ASSERT_NEAR(h[static_cast<size_t>(n * F + j)], expected,
                      epsilon<T>() * (16 * std::abs(expected) + 64 * std::abs(up)));
        }
      }
    }
  }
}

TEST(Gated, GradientsMatchFiniteDifferences) {
  for (const Activation activation : kActivations) {
    for (const auto& [rows, F] : kShapes) {
      Rig rig(3);
      auto gate_up = random_values(rows * 2 * F, 1), r = random_values(rows * F, 2);
      for (double& x : gate_up) x *= 3;
      std::vector<double> h(r.size()), d_gate_up(gate_up.size());
      const auto value = [&] {
        rig->gated_forward(view(gate_up, {rows, 2 * F}), activation, view(h, {rows, F}));
        return dot(h, r);
      };
      value();
      std::vector<double> again(h.size());
      rig->gated_backward({.d_h = view(r, {rows, F}),
                           .gate_up = view(gate_up, {rows, 2 * F}),
                           .activation = activation,
                           .d_gate_up = view(d_gate_up, {rows, 2 * F}),
                           .h = view(again, {rows, F})});
      EXPECT_EQ(again, h);
      expect_gradient(gate_up, d_gate_up, value, "gate_up");
      value();  // computes h for the original values again
      // The results may overwrite the inputs, as in LlamaBlock::backward(). The last argument, h, may be omitted.
      auto in_place = gate_up, d_h = r;
      rig->gated_backward({.d_h = view(d_h, {rows, F}),
                           .gate_up = view(in_place, {rows, 2 * F}),
                           .activation = activation,
                           .d_gate_up = view(in_place, {rows, 2 * F}),
                           .h = view(d_h, {rows, F})});
      EXPECT_EQ(in_place, d_gate_up);
      EXPECT_EQ(d_h, h);
      rig->gated_backward({.d_h = view(r, {rows, F}),
                           .gate_up = view(gate_up, {rows, 2 * F}),
                           .activation = activation,
                           .d_gate_up = view(in_place, {rows, 2 * F})});
      EXPECT_EQ(in_place, d_gate_up);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
