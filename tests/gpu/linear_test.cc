#include <array>

#include "gpu_testing.h"

namespace tessera::testing {
namespace {

class LinearTest : public TypedTest {
 protected:
  struct Size {
    int64_t N, I, O;
  };
  static constexpr Size kSizes[] = {{1, 8, 16},     {5, 24, 8},   {64, 64, 192},
                                    {130, 48, 120}, {77, 33, 35}, {700, 256, 64}};

  // An element of the result is a sum of `length` terms in [−1, 1]. Each of the `length` partial sums is about √length
  // and is rounded once. These rounding errors have random signs, so together they are about √length · √length = length
  // roundoffs of the arithmetic. Then the result, at most `largest`, is rounded to its type. The constants are margins.
  double tolerance(int64_t length, double largest) const {
    return arithmetic_roundoff(dtype()) * static_cast<double>(length + 16) * 2 +
           4 * roundoff(dtype()) * std::max(1.0, largest);
  }
};
TESSERA_FOR_ALL_TYPES(LinearTest);

struct Variant {
  Activation activation;
  float rate;                  // of dropout
  bool residual, keeps, bias;  // keeps: the forward pass stores the preactivation
};
const Variant kVariants[] = {
    {Activation::none, 0, false, false, true},     {Activation::none, 0, false, false, false},
    {Activation::none, 0, true, false, true},      {Activation::none, 0.3f, true, false, true},
    {Activation::gelu_tanh, 0, false, true, true}, {Activation::gelu_tanh, 0, false, false, true},
    {Activation::gelu_tanh, 0, true, true, false}, {Activation::gelu_tanh, 0.2f, true, true, true},
    {Activation::relu, 0, false, true, true},      {Activation::relu, 0.1f, false, true, true},
    {Activation::relu, 0.1f, true, false, false},
};

TEST_P(LinearTest, Forward) {
  for (const auto [N, I, O] : kSizes) {
    for (const Variant& v : kVariants) {
      SCOPED_TRACE(::testing::Message() << N << "x" << I << "x" << O << " variant " << &v - kVariants);
      Tensor x = random_tensor(dtype(), {N, I}, 1), weight = random_tensor(dtype(), {O, I}, 2),
             bias = random_tensor(dtype(), {O}, 3), residual = random_tensor(dtype(), {N, O}, 4), y(dtype(), {N, O}),
             pre(dtype(), {N, O}), ids(row_ids(N));
      const auto epilogue = [&](const Side& at) {
        return LinearEpilogue{v.activation, {v.rate, 77, 3, at(ids)}, v.residual ? at(residual) : View{}};
      };
      on_both({&y, v.keeps ? &pre : nullptr}, [&](Kernels& k, const Side& at) {
        k.linear_forward({.x = at(x),
                          .weight = at(weight),
                          .bias = v.bias ? at(bias) : View{},
                          .epilogue = epilogue(at),
                          .preactivation = v.keeps ? at(pre) : View{},
                          .y = at(y)});
      });
      y.expect_close(2 * tolerance(I, y.largest()), "y");
      if (v.keeps) pre.expect_close(tolerance(I, pre.largest()), "preactivation");
      if (!v.residual) continue;
      on_both({&residual}, [&](Kernels& k, const Side& at) {
        k.linear_forward({.x = at(x),
                          .weight = at(weight),
                          .bias = v.bias ? at(bias) : View{},
                          .epilogue = epilogue(at),
                          .preactivation = v.keeps ? at(pre) : View{},
                          .y = at(residual)});
      });
      residual.expect_close(2 * tolerance(I, y.largest()), "in place of the residual");
    }
  }
}

TEST_P(LinearTest, BackwardInput) {
  for (const auto [N, I, O] : kSizes) {
    for (const Variant& v : kVariants) {
      SCOPED_TRACE(::testing::Message() << N << "x" << I << "x" << O << " variant " << &v - kVariants);
      Tensor d_y = random_tensor(dtype(), {N, O}, 1), weight = random_tensor(dtype(), {O, I}, 2),
             residual = random_tensor(dtype(), {N, I}, 4), d_x(dtype(), {N, I}),
             pre = random_tensor(dtype(), {N, I}, 5), ids(row_ids(N));
      const auto epilogue = [&](const Side& at) {
        return LinearEpilogue{v.activation, {v.rate, 77, 3, at(ids)}, v.residual ? at(residual) : View{}};
      };
      const bool active = v.activation != Activation::none;
      on_both({&d_x}, [&](Kernels& k, const Side& at) {
        k.linear_backward_input({.d_y = at(d_y),
                                 .weight = at(weight),
                                 .epilogue = epilogue(at),
                                 .preactivation = active ? at(pre) : View{},
                                 .d_x = at(d_x)});
      });
      d_x.expect_close(2 * tolerance(O, d_x.largest()), "d_x");
      if (!v.residual) continue;
      on_both({&residual}, [&](Kernels& k, const Side& at) {
        k.linear_backward_input({.d_y = at(d_y),
                                 .weight = at(weight),
                                 .epilogue = epilogue(at),
                                 .preactivation = active ? at(pre) : View{},
                                 .d_x = at(residual)});
      });
      residual.expect_close(2 * tolerance(O, d_x.largest()), "in place of the residual");
    }
  }
}

TEST_P(LinearTest, BackwardWeight) {
  for (const DType gradient : gradient_types()) {
    for (const auto [N, I, O] : kSizes) {
      for (const bool has_bias : {false, true}) {  // false: overwrites d_weight; true: adds to d_weight and d_bias
        SCOPED_TRACE(::testing::Message() << N << "x" << I << "x" << O << " " << name_of(gradient));
        Tensor d_y = random_tensor(dtype(), {N, O}, 1), x = random_tensor(dtype(), {N, I}, 2),
               d_weight = random_tensor(gradient, {O, I}, 3), d_bias = random_tensor(gradient, {O}, 4);
        on_both({&d_weight, &d_bias}, [&](Kernels& k, const Side& at) {
          k.linear_backward_weight(at(d_y), at(x), !has_bias, at(d_weight));
          if (has_bias) k.linear_backward_bias({{{at(d_y), at(d_bias)}}});
        });
        const double products = arithmetic_roundoff(dtype()) * static_cast<double>(N + 16) * 2;
        d_weight.expect_close(products + 2 * roundoff(gradient) * std::max(1.0, d_weight.largest()), "d_weight");
        d_bias.expect_close(products + 3 * roundoff(gradient) * std::max(1.0, d_bias.largest()), "d_bias");
      }
    }
  }
}

// With tuning, the kernels measure the times of several algorithms, and use the fastest one that does not change the
// bits of the result. The test compares the bits with and without tuning.
TEST_P(LinearTest, MeasuringChangesNoBit) {
  const auto measuring = make_kernels(*rig().gpu);
  for (const auto [N, I, O] : {Size{130, 48, 120}, Size{2048, 1024, 512}, Size{2048, 512, 1024}}) {
    SCOPED_TRACE(::testing::Message() << N << "x" << I << "x" << O);
    Tensor x = random_tensor(dtype(), {N, I}, 1), weight = random_tensor(dtype(), {O, I}, 2),
           bias = random_tensor(dtype(), {O}, 3), d_y = random_tensor(dtype(), {N, O}, 4), y(dtype(), {N, O}),
           pre(dtype(), {N, O}), d_x(dtype(), {N, I}), d_weight(dtype(), {O, I}),
           sparse = random_tensor(dtype(), {N, O}, 5);
    rig().gpu_kernels->fill(sparse.gpu().rows(8, N), 0);
    std::vector<std::vector<std::byte>> wanted;
    for (int turn = 0; turn < 3; ++turn) {  // turn 0: no measuring; 1: calls measure; 2: calls use the measured choice
      Kernels& k = turn == 0 ? *rig().gpu_kernels : *measuring;
      k.set_tuning(turn > 0);
      // Only 8 rows of `sparse` are not zero. From such an input, algorithms that add in different orders can give the
      // same bits. The kernels must not conclude from this that they always give the same bits. Only one size begins
      // with this input, because after such a first call, later calls with the same shape are not measured.
      if (turn == 1 && I > O) k.linear_backward_weight(sparse.gpu(), x.gpu(), true, d_weight.gpu());
      k.linear_forward({.x = x.gpu(),
                        .weight = weight.gpu(),
                        .bias = bias.gpu(),
                        .epilogue = {Activation::gelu_tanh, {}, {}},
                        .preactivation = pre.gpu(),
                        .y = y.gpu()});
      k.linear_backward_input({.d_y = d_y.gpu(), .weight = weight.gpu(), .d_x = d_x.gpu()});
      // The second call adds to d_weight. A call that adds is not measured: it uses the algorithm that was chosen for a
      // call that overwrites.
      k.linear_backward_weight(d_y.gpu(), x.gpu(), true, d_weight.gpu());
      k.linear_backward_weight(d_y.gpu(), x.gpu(), false, d_weight.gpu());
      const std::vector<std::vector<std::byte>> bits = {y.bits(), pre.bits(), d_x.bits(), d_weight.bits()};
      if (turn == 0) wanted = bits;
      EXPECT_TRUE(bits == wanted) << "turn " << turn;
    }
  }
}

// With tf32, tensor cores use the first 11 bits of a factor and ignore the other bits. On average, this makes a product
// smaller by 2^-10 of its value. With factors uniform in [-1, 1], a sum of `length` products is about √length / 3. The
// largest of thousands of such sums is at most five times as large. The error is therefore below 2^-9 · √length. The
// largest error must also exceed 2^-12. f32 arithmetic would be far more exact, so this shows that tf32 is in use.
TEST(Tf32, TruncatesOnlyFactors) {
  const auto tf32 = make_kernels(*rig().gpu, true);
  for (const auto [N, I, O] : {std::array<int64_t, 3>{64, 64, 192}, {700, 256, 64}, {130, 48, 120}}) {
    SCOPED_TRACE(::testing::Message() << N << "x" << I << "x" << O);
    Tensor x = random_tensor(DType::f32, {N, I}, 1), weight = random_tensor(DType::f32, {O, I}, 2),
           d_y = random_tensor(DType::f32, {N, O}, 3), y(DType::f32, {N, O}), d_x(DType::f32, {N, I}),
           d_weight(DType::f32, {O, I});
    const auto products = [&](Kernels& k, const Side& at) {
      k.linear_forward({.x = at(x), .weight = at(weight), .y = at(y)});
      k.linear_backward_input({.d_y = at(d_y), .weight = at(weight), .d_x = at(d_x)});
      k.linear_backward_weight(at(d_y), at(x), true, at(d_weight));
    };
    products(*tf32, {true});
    products(*rig().cpu_kernels, {false});
    const auto check = [](const Tensor& result, int64_t length, const char* what) {
      result.expect_close(0x1p-9 * std::sqrt(static_cast<double>(length)), what);
      const std::vector<double> values = result.values();
      double most = 0;
      for (size_t i = 0; i < values.size(); ++i) most = std::max(most, std::abs(values[i] - result.expected()[i]));
      EXPECT_GT(most, 0x1p-12) << what << " is too exact for tf32";
    };
    check(y, I, "y");
    check(d_x, O, "d_x");
    check(d_weight, N, "d_weight");
  }
}

TEST_P(LinearTest, ActivationAndDropout) {
  for (const auto [N, I, O] : kSizes) {
    for (const float rate : {0.0f, 0.25f}) {
      for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::relu}) {
        Tensor x = random_tensor(dtype(), {N, O}, 1), in_place = random_tensor(dtype(), {N, O}, 1),
               d_y = random_tensor(dtype(), {N, 64}, 2), weight = random_tensor(dtype(), {64, O}, 3),
               y(dtype(), {N, O}), d_x(dtype(), {N, O}), ids(row_ids(N));
        Tensor d_pre[] = {{dtype(), {N, O}}, {dtype(), {N, O}}};
        on_both({&y, &in_place, &d_x, &d_pre[0], &d_pre[1]}, [&](Kernels& k, const Side& at) {
          const LinearEpilogue made_by{activation, {rate, 5, 6, at(ids)}, {}};
          k.linear_backward_input({.d_y = at(d_y),
                                   .weight = at(weight),
                                   .epilogue = made_by,
                                   .preactivation = at(x),
                                   .d_x = at(d_pre[0]),
                                   .x = at(y)});
          k.linear_backward_input({.d_y = at(d_y),
                                   .weight = at(weight),
                                   .epilogue = made_by,
                                   .preactivation = at(in_place),
                                   .d_x = at(d_pre[1]),
                                   .x = at(in_place)});
          k.dropout_backward(at(x), {rate, 5, 6, at(ids)}, at(d_x));
        });
        y.expect_close(4 * roundoff(dtype()) + 16 * arithmetic_roundoff(dtype()), "activation");
        EXPECT_EQ(in_place.bits(), y.bits());
        EXPECT_EQ(d_pre[1].bits(), d_pre[0].bits());
        d_pre[0].expect_close(2 * tolerance(64, d_pre[0].largest()), "d_pre");
        d_x.expect_close(4 * roundoff(dtype()), "dropout");
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
