#include "ops_testing.h"
#include "tessera/ops/dropout_mask.h"
#include "tessera/ops/flops.h"

namespace tessera::testing {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456 * x * (1 + 0.044715 * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(0.79788456 * x * (1 + 0.044715 * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456 * (1 + 3 * 0.044715 * x * x);
}
double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::gelu_tanh:
      return gelu(x);
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::silu:
      break;  // only in gated layers
  }
  return 0;
}
double slope(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return 1;
    case Activation::gelu_tanh:
      return gelu_slope(x);
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::silu:
      break;
  }
  return 0;
}

struct Case {
  int64_t rows, in, out;
  Activation activation = Activation::none;
  float dropout = 0;
  bool bias = true, residual = false, preactivation = false;
  int threads = 2;
};

const Case kCases[] = {
    {1, 1, 1},
    {1, 64, 200},
    {1, 300, 1031, Activation::gelu_tanh, 0, true, true, true, 3},
    {2, 129, 65, Activation::none, 0, false},
    {3, 40, 2049, Activation::relu, 0.3f, true, true, true},
    {5, 257, 33, Activation::gelu_tanh, 0, true, false, true, 1},
    {17, 64, 64, Activation::none, 0.5f, true, true},
    {31, 130, 129, Activation::none, 0.1f, true, false},
    {33, 48, 700, Activation::gelu_tanh, 0.2f, true, false, true, 3},
    {100, 96, 321, Activation::gelu_tanh, 0, true, true, true},
    {300, 70, 515, Activation::relu, 0.1f, true, false, true},
    {259, 513, 130, Activation::none, 0, true, true, false, 3},
    {260, 400, 520, Activation::none, 0, false, false, false},
    {700, 31, 530, Activation::gelu_tanh, 0, true, false, true, 1},
};

// The inputs of a case, as doubles. A float holds each value exactly, so the tests with float and with double have the
// same inputs.
struct Inputs {
  explicit Inputs(const Case& c)
      : x(converted<double>(random_values<float>(c.rows * c.in, 1))),
        weight(converted<double>(random_values<float>(c.out * c.in, 2))),
        bias(converted<double>(random_values<float>(c.out, 3))),
        residual(converted<double>(random_values<float>(c.rows * c.out, 4))),
        added(converted<double>(random_values<float>(c.rows * c.out, 5))),
        ids(row_ids(c.rows)) {
    if (c.rows % 2 == 0) std::ranges::fill(added, 0);  // these cases have no addend
  }
  std::vector<double> x, weight, bias, residual, added;
  std::vector<int64_t> ids;
};

LinearEpilogue epilogue_of(const Case& c, std::vector<int64_t>& ids) {
  LinearEpilogue epilogue;
  epilogue.activation = c.activation;
  epilogue.dropout = {c.dropout, 1234567890123ull, 5, view(ids)};
  return epilogue;
}

double mask(const Case& c, int64_t row_id, int64_t column) {
  if (c.dropout == 0) return 1;
  return dropout_keeps(c.dropout, 1234567890123ull, 5, row_id, static_cast<uint32_t>(column))
             ? 1 / (1 - static_cast<double>(c.dropout))
             : 0;
}

template <typename T>
struct LinearTest : ::testing::Test {};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LinearTest, FloatTypes);

TYPED_TEST(LinearTest, ForwardEqualsTheDefinition) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.out);
    Inputs in(c);
    std::vector<double> expected, expected_pre;
    for (int64_t n = 0; n < c.rows; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        double pre = (c.bias ? in.bias[static_cast<size_t>(o)] : 0) + in.added[static_cast<size_t>(n * c.out + o)];
        for (int64_t i = 0; i < c.in; ++i) {
          pre += in.x[static_cast<size_t>(n * c.in + i)] * in.weight[static_cast<size_t>(o * c.in + i)];
        }
        expected_pre.push_back(pre);
        expected.push_back(activated(c.activation, pre) * mask(c, in.ids[static_cast<size_t>(n)], o) +
                           (c.residual ? in.residual[static_cast<size_t>(n * c.out + o)] : 0));
      }
    }
    Rig rig(c.threads);
    auto x = converted<T>(in.x), weight = converted<T>(in.weight), bias = converted<T>(in.bias);
    // The result overwrites the residual, as in a block.
    // It overwrites the addend if there is no residual.
    const bool adds = c.rows % 2 == 1;
    auto added = converted<T>(in.added);
    auto y = c.residual ? converted<T>(in.residual) : adds ? added : std::vector<T>(expected.size(), T(NAN));
    std::vector<T> pre(expected.size());
    LinearEpilogue epilogue = epilogue_of(c, in.ids);
    if (c.residual) epilogue.residual = view(y, {c.rows, c.out});
    rig->linear_forward({.x = view(x, {c.rows, c.in}),
                         .weight = view(weight, {c.out, c.in}),
                         .bias = c.bias ? view(bias) : View{},
                         .added = adds ? view(c.residual ? added : y, {c.rows, c.out}) : View{},
                         .epilogue = epilogue,
                         .preactivation = c.preactivation ? view(pre, {c.rows, c.out}) : View{},
                         .y = view(y, {c.rows, c.out})});
    EXPECT_EQ(rig->flops(), linear_flops(c.rows, c.in, c.out));
    // Each element of pre is a sum of I = c.in products of magnitude ≤ 1, in any order. Each of the I partial sums has
    // a rounding error of at most ε·I. With random signs, these errors add up to about ε·I·√I. GELU multiplies this
    // error by its slope, which is at most 1.13, and adds a few ε of |pre|. The mask multiplies by at most 2. The
    // factor 3 of the tolerance is more than 2 × 1.13.
    const double tolerance =
        3 * epsilon<T>() * (static_cast<double>(c.in) + 16) * std::sqrt(static_cast<double>(c.in)) +
        (sizeof(T) == 4 ? 2e-6 : 1e-14);
    expect_close(y, expected, tolerance, "y");
    if (c.preactivation) {
      expect_close(pre, expected_pre, tolerance, "preactivation");
      if (!c.residual) {  // linear_backward_input() computes y again from pre, with the same bits
        std::vector<T> again(y.size()), d_y(static_cast<size_t>(c.rows)), row(static_cast<size_t>(c.out)), d_x = again;
        rig->linear_backward_input({.d_y = view(d_y, {c.rows, 1}),
                                    .weight = view(row, {1, c.out}),
                                    .epilogue = epilogue,
                                    .preactivation = view(pre, {c.rows, c.out}),
                                    .d_x = view(d_x, {c.rows, c.out}),
                                    .x = view(again, {c.rows, c.out})});
        EXPECT_EQ(again, y);
      }
    }
  }
}

TYPED_TEST(LinearTest, BackwardInputEqualsTheDefinition) {
  using T = TypeParam;
  for (const Case& c : kCases) {  // here, x has c.out columns and y has c.in: d_y [rows, in], weight [in, out]
    SCOPED_TRACE(c.out);
    Inputs in(c);
    const auto pre_values = converted<double>(random_values<float>(c.rows * c.out, 8));
    std::vector<double> expected;
    for (int64_t n = 0; n < c.rows; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        const auto at = static_cast<size_t>(n * c.out + o);
        double sum = in.added[at];
        for (int64_t i = 0; i < c.in; ++i) {
          sum += in.x[static_cast<size_t>(n * c.in + i)] * in.weight[static_cast<size_t>(i * c.out + o)];
        }
        expected.push_back((c.residual ? in.residual[at] : 0) +
                           sum * mask(c, in.ids[static_cast<size_t>(n)], o) * slope(c.activation, pre_values[at]));
      }
    }
    Rig rig(c.threads);
    auto d_y = converted<T>(in.x), weight = converted<T>(in.weight), pre = converted<T>(pre_values);
    const bool adds = c.rows % 2 == 1;
    auto added = converted<T>(in.added);
    auto d_x = c.residual ? converted<T>(in.residual) : adds ? added : std::vector<T>(expected.size(), T(NAN));
    LinearEpilogue epilogue = epilogue_of(c, in.ids);
    if (c.residual) epilogue.residual = view(d_x, {c.rows, c.out});
    rig->linear_backward_input({.d_y = view(d_y, {c.rows, c.in}),
                                .weight = view(weight, {c.in, c.out}),
                                .added = adds ? view(c.residual ? added : d_x, {c.rows, c.out}) : View{},
                                .epilogue = epilogue,
                                .preactivation = c.activation == Activation::none ? View{} : view(pre, {c.rows, c.out}),
                                .d_x = view(d_x, {c.rows, c.out})});
    const double tolerance =
        3 * epsilon<T>() * (static_cast<double>(c.in) + 16) * std::sqrt(static_cast<double>(c.in)) +
        (sizeof(T) == 4 ? 2e-6 : 1e-14) * static_cast<double>(c.in);
    expect_close(d_x, expected, tolerance, "d_x");
  }
}

TYPED_TEST(LinearTest, BackwardWeightAddsTheDefinitionOrWritesIt) {
  using T = TypeParam;
  bool fresh = false;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.out);
    fresh = !fresh;
    Inputs in(c);
    auto d_weight = converted<T>(in.weight), d_bias = converted<T>(in.bias);
    std::vector<double> expected = in.weight, expected_bias = in.bias;
    if (fresh) std::fill(expected.begin(), expected.end(), 0);
    for (int64_t n = 0; n < c.rows; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        const double d = in.residual[static_cast<size_t>(n * c.out + o)];
        expected_bias[static_cast<size_t>(o)] += d;
        for (int64_t i = 0; i < c.in; ++i) {
          expected[static_cast<size_t>(o * c.in + i)] += d * in.x[static_cast<size_t>(n * c.in + i)];
        }
      }
    }
    Rig rig(c.threads);
    auto x = converted<T>(in.x), d_y = converted<T>(in.residual);
    rig->linear_backward_weight(view(d_y, {c.rows, c.out}), view(x, {c.rows, c.in}), fresh,
                                view(d_weight, {c.out, c.in}));
    if (c.bias) rig->linear_backward_bias({{{view(d_y, {c.rows, c.out}), view(d_bias)}}});
    const double tolerance =
        2 * epsilon<T>() * static_cast<double>(c.rows + 2) * std::sqrt(static_cast<double>(c.rows) + 1);
    expect_close(d_weight, expected, tolerance, "d_weight");
    if (c.bias) expect_close(d_bias, expected_bias, tolerance, "d_bias");
  }
}

// y is the output of two linear layers with an activation, dropout and a residual. r is fixed. The backward calls of
// both layers compute the gradients of the scalar Σ y∘r. The test compares these gradients with finite differences.
TEST(Linear, GradientsOfTwoLayersMatchFiniteDifferences) {
  for (Activation activation : {Activation::gelu_tanh, Activation::relu}) {
    const int64_t rows = 7, in = 9, hidden = 70, out = 11;
    Rig rig(3);
    auto x = random_values(rows * in, 1), w1 = random_values(hidden * in, 2), b1 = random_values(hidden, 3);
    auto w2 = random_values(out * hidden, 4), b2 = random_values(out, 5), residual = random_values(rows * out, 6);
    const auto r = random_values(rows * out, 7);
    auto ids = row_ids(rows);
    LinearEpilogue first, second;
    first.activation = activation;
    first.dropout = {0.25f, 42, 1, view(ids)};
    second.dropout = {0.1f, 42, 2, view(ids)};
    std::vector<double> pre(static_cast<size_t>(rows * hidden)), h(pre.size()), y(r.size());
    auto value = [&] {
      second.residual = view(residual, {rows, out});
      rig->linear_forward({.x = view(x, {rows, in}),
                           .weight = view(w1, {hidden, in}),
                           .bias = view(b1),
                           .epilogue = first,
                           .preactivation = view(pre, {rows, hidden}),
                           .y = view(h, {rows, hidden})});
      rig->linear_forward({.x = view(h, {rows, hidden}),
                           .weight = view(w2, {out, hidden}),
                           .bias = view(b2),
                           .epilogue = second,
                           .y = view(y, {rows, out})});
      return dot(y, r);
    };
    value();
    auto d_y = r;
    std::vector<double> d_x(x.size()), d_w1(w1.size()), d_b1(b1.size()), d_w2(w2.size()), d_b2(b2.size());
    std::vector<double> d_pre(pre.size());
    const View d_y_view = view(d_y, {rows, out}), d_pre_view = view(d_pre, {rows, hidden});
    rig->dropout_backward(d_y_view, second.dropout, d_y_view);
    rig->linear_backward_weight(d_y_view, view(h, {rows, hidden}), false, view(d_w2, {out, hidden}));
    rig->linear_backward_input({.d_y = d_y_view,
                                .weight = view(w2, {out, hidden}),
                                .epilogue = first,
                                .preactivation = view(pre, {rows, hidden}),
                                .d_x = d_pre_view});
    rig->linear_backward_weight(d_pre_view, view(x, {rows, in}), false, view(d_w1, {hidden, in}));
    rig->linear_backward_bias({{{d_y_view, view(d_b2)}, {d_pre_view, view(d_b1)}}});
    rig->linear_backward_input({.d_y = d_pre_view, .weight = view(w1, {hidden, in}), .d_x = view(d_x, {rows, in})});
    expect_gradient(x, d_x, value, "x");
    expect_gradient(w1, d_w1, value, "w1");
    expect_gradient(b1, d_b1, value, "b1");
    expect_gradient(w2, d_w2, value, "w2");
    expect_gradient(b2, d_b2, value, "b2");
    expect_gradient(residual, r, value, "residual");
  }
}

TEST(Linear, RepeatsBitForBit) {
  const int64_t rows = 130, in = 300, out = 650;
  Rig rig(3);
  auto x = random_values<float>(rows * in, 1), weight = random_values<float>(out * in, 2);
  auto d_y = random_values<float>(rows * out, 3);
  std::vector<float> y[2], d_x[2], d_w[2], d_b[2];
  for (int i = 0; i < 2; ++i) {
    y[i].resize(static_cast<size_t>(rows * out));
    d_x[i].resize(x.size());
    d_w[i].resize(weight.size());
    d_b[i].resize(static_cast<size_t>(out));
    rig->linear_forward({.x = view(x, {rows, in}), .weight = view(weight, {out, in}), .y = view(y[i], {rows, out})});
    rig->linear_backward_input(
        {.d_y = view(d_y, {rows, out}), .weight = view(weight, {out, in}), .d_x = view(d_x[i], {rows, in})});
    rig->linear_backward_weight(view(d_y, {rows, out}), view(x, {rows, in}), false, view(d_w[i], {out, in}));
    rig->linear_backward_bias({{{view(d_y, {rows, out}), view(d_b[i])}}});
  }
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(d_x[0], d_x[1]);
  EXPECT_EQ(d_w[0], d_w[1]);
  EXPECT_EQ(d_b[0], d_b[1]);
}

}  // namespace
}  // namespace tessera::testing
