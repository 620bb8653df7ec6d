#include "gpu_testing.h"

namespace tessera::testing {
namespace {

class NormTest : public TypedTest {
 protected:
  // Each shape is {rows, width}. One warp computes a narrow row, and several warps compute a wide row. The width 30 is
  // not a multiple of kPackOf (ops/cuda/types.cuh), except for f64. The last width is the largest that the
  // backward pass supports in this type.
  std::vector<Shape> shapes() const {
    return {{1, 8},     {130, 30},    {7, 64},
            {1000, 96}, {37, 1024},   {2500, 1000},
            {5, 4096},  {1200, 2560}, {3, dtype() == DType::f64 ? 8192 : 16384}};
  }
};
TESSERA_FOR_ALL_TYPES(NormTest);

TEST_P(NormTest, Forward) {
  for (const Shape& shape : shapes()) {
    const int64_t N = shape[0], C = shape[1];
    Tensor x = random_tensor(dtype(), shape, 1), weight = random_tensor(dtype(), {C}, 2),
           bias = random_tensor(dtype(), {C}, 3), y(dtype(), shape), stats_of_rows(stats(), {N, 2});
    on_both({&y, &stats_of_rows}, [&](Kernels& k, const Side& at) {
      k.layer_norm_forward({.x = at(x),
                            .weight = at(weight),
                            .bias = at(bias),
                            .epsilon = 1e-5,
                            .y = at(y),
                            .stats = at(stats_of_rows)});
    });
    // The rounding errors of a sum of C terms are together about √C roundoffs. The other numbers in the limits are
    // margins. y is also rounded once to its own type.
    const double error = arithmetic_roundoff(dtype()) * (16 + std::sqrt(static_cast<double>(C)));
    stats_of_rows.expect_close(4 * error * std::max(1.0, stats_of_rows.largest()), "stats");
    y.expect_close(8 * error * std::max(1.0, y.largest()) + roundoff(dtype()) * y.largest(), "y");

    const auto apart = y.bits();
    rig().gpu_kernels->layer_norm_forward(
        {.x = x.gpu(), .weight = weight.gpu(), .bias = bias.gpu(), .epsilon = 1e-5, .y = x.gpu()});
    EXPECT_EQ(x.bits(), apart) << "in place, no stats";
  }
}

TEST_P(NormTest, Backward) {
  for (const DType gradient : gradient_types()) {
    for (const Shape& shape : shapes()) {
      const int64_t N = shape[0], C = shape[1];
      Tensor x = random_tensor(dtype(), shape, 1), weight = random_tensor(dtype(), {C}, 2),
             bias = random_tensor(dtype(), {C}, 3), d_y = random_tensor(dtype(), shape, 4),
             residual = random_tensor(dtype(), shape, 5), d_x(dtype(), shape), y(dtype(), shape), again(dtype(), shape),
             stats_of_rows(stats(), {N, 2}), d_weight = random_tensor(gradient, {C}, 6),
             d_bias = random_tensor(gradient, {C}, 7);
      on_both({&d_x, &d_weight, &d_bias}, [&](Kernels& k, const Side& at) {
        k.layer_norm_forward({.x = at(x),
                              .weight = at(weight),
                              .bias = at(bias),
                              .epsilon = 1e-5,
                              .y = at(y),
                              .stats = at(stats_of_rows)});
        k.layer_norm_backward({.d_y = at(d_y),
                               .x = at(x),
                               .weight = at(weight),
                               .bias = at(bias),
                               .stats = at(stats_of_rows),
                               .residual = at(residual),
                               .d_x = at(d_x),
                               .d_weight = at(d_weight),
                               .d_bias = at(d_bias),
                               .y = at(again)});
      });
      EXPECT_EQ(again.bits(), y.bits());
      const double error = arithmetic_roundoff(dtype()) * (32 + std::sqrt(static_cast<double>(C)));
      d_x.expect_close(16 * error * std::max(1.0, d_x.largest()) + roundoff(dtype()) * d_x.largest(), "d_x");
      const double columns = arithmetic_roundoff(dtype()) * (64 + static_cast<double>(N));
      d_weight.expect_close(
          4 * columns * std::max(1.0, d_weight.largest()) + 2 * roundoff(gradient) * d_weight.largest(), "d_weight");
      d_bias.expect_close(columns * std::max(1.0, d_bias.largest()) + 2 * roundoff(gradient) * d_bias.largest(),
                          "d_bias");

      // d_x has the same bits if it overwrites the residual or d_y.
      const auto apart = d_x.bits();
      Tensor unused_weight = random_tensor(gradient, {C}, 6), unused_bias = random_tensor(gradient, {C}, 7);
      rig().gpu_kernels->layer_norm_backward({.d_y = d_y.gpu(),
                                              .x = x.gpu(),
                                              .weight = weight.gpu(),
                                              .stats = stats_of_rows.gpu(),
                                              .residual = residual.gpu(),
                                              .d_x = residual.gpu(),
                                              .d_weight = unused_weight.gpu(),
                                              .d_bias = unused_bias.gpu()});
      EXPECT_EQ(residual.bits(), apart);
      residual.reset();
      rig().gpu_kernels->layer_norm_backward({.d_y = d_y.gpu(),
                                              .x = x.gpu(),
                                              .weight = weight.gpu(),
                                              .stats = stats_of_rows.gpu(),
                                              .residual = residual.gpu(),
                                              .d_x = d_y.gpu(),
                                              .d_weight = unused_weight.gpu(),
                                              .d_bias = unused_bias.gpu()});
      EXPECT_EQ(d_y.bits(), apart);
    }
  }
}

class LossTest : public TypedTest {};
TESSERA_FOR_ALL_TYPES(LossTest);

TEST_P(LossTest, CrossEntropy) {
  for (const Shape& shape : {Shape{1, 5}, Shape{300, 8}, Shape{7, 1003}, Shape{20, 8200}, Shape{40, 40000},
                             Shape{3, 40001}, Shape{2, 250880}}) {
    const int64_t M = shape[0], V = shape[1];
    std::vector<double> values = random_values(M * V, 1);
    for (double& x : values) x *= 10;
    // Masks the first three quarters of the last row: their logits become −∞.
    for (int64_t i = 0; i < V * 3 / 4; ++i) {
      values[static_cast<size_t>((M - 1) * V + i)] = -std::numeric_limits<double>::infinity();
    }
    std::vector<int32_t> target;
    for (int64_t i = 0; i < M; ++i) target.push_back(static_cast<int32_t>((i * 37 + V - 1) % V));
    target.back() = static_cast<int32_t>(V - 1);
    for (const double scale : {0.0, 0.5, 1024.0}) {
      Tensor logits(dtype(), shape, values), targets(target), loss(DType::f64, {1}, {3});
      on_both({&loss}, [&](Kernels& k, const Side& at) {
        if (at.gpu) logits.reset();
        k.softmax_cross_entropy(at(logits), at(targets), scale, at(loss));
      });
      // Logits of a row differ by at most 20. The exponential of such a difference has a relative error of about 20
      // roundoffs. The roundoff is 2^-53 for f64, and 2^-24 for all other types, because the GPU computes with them in
      // f32. With 16-bit types, the fast exponential adds about 2^-21. `error` is at least three times as large as the
      // sum of these errors.
      const double error = dtype() == DType::f64 ? 0x1p-44 : size_of(dtype()) == 2 ? 0x1p-17 : 0x1p-18;
      loss.expect_close(error * static_cast<double>(M) * 4, "loss");
      if (scale == 0) continue;
      const double smallest = dtype() == DType::f16 ? 0x1p-25 : 0;  // half the distance between subnormal f16 numbers
      logits.expect_close((roundoff(dtype()) + error) * scale + smallest, "gradient");
    }
  }
}

TEST_P(LossTest, ArgmaxIsTheFirstOfEqualValues) {
  for (const int64_t V : {1, 9, 1000, 8192, 250880}) {
    constexpr int64_t kRows = 6;
    std::vector<double> values = random_values(kRows * V, 2);
    for (int64_t at : {V / 3, V / 2, V - 1}) values[static_cast<size_t>(at)] = 3;   // row 0: equal maxima
    for (int64_t i = 0; i < V; ++i) values[static_cast<size_t>(V + i)] = 0.5;       // row 1: all equal
    for (int64_t i = 0; i < V; ++i) values[static_cast<size_t>(2 * V + i)] = -1e4;  // row 2: far below zero
    Tensor logits(dtype(), {kRows, V}, values), ids(std::vector<int32_t>(kRows, -1));
    on_both({&ids}, [&](Kernels& k, const Side& at) { k.argmax_rows(at(logits), at(ids)); });
    ids.expect_same_integers("argmax");
  }
}

// Expects that the GPU draws the same tokens as the CPU. The CPU gets the same logits, converted to double. CPU and GPU
// may differ only in the last bit of an exponential. This difference almost never changes a token.
void expect_tokens_of_the_cpu(DType dtype, std::initializer_list<int64_t> vocabularies) {
  RandomStream random(13, 4);
  for (const int64_t V : vocabularies) {
    for (int turn = 0; turn < 12; ++turn) {
      const int64_t rows = 1 + static_cast<int64_t>(random.next_below(V > 10000 ? 5 : 70));
      std::vector<double> values =
          random_values(rows * V, 100 * static_cast<uint64_t>(V) + static_cast<uint64_t>(turn));
      for (double& x : values) x = 12 * x * x * x;
      if (turn == 0) std::fill(values.begin(), values.end(), 0.25);  // all equal
      if (turn == 1) values[0] = NAN;
      std::vector<int64_t> draws(static_cast<size_t>(rows));
      for (int64_t& draw : draws) draw = static_cast<int64_t>(random.next_u64());
      const double temperatures[] = {0.01, 0.6, 1, 3}, masses[] = {0, 0.1, 0.9, 1};
      const int64_t counts[] = {0, 1, 50, V / 2, V + 1};
      const Sampling sampling{.temperature = temperatures[random.next_below(4)],
                              .top_k = counts[random.next_below(5)],
                              .top_p = masses[random.next_below(4)]};
      SCOPED_TRACE(::testing::Message() << V << " rows " << rows << " T " << sampling.temperature << " top_k "
                                        << sampling.top_k << " top_p " << sampling.top_p);
      Tensor logits(dtype, {rows, V}, values), of_rows(draws), ids(std::vector<int32_t>(draws.size(), -1));
      on_both({&ids}, [&](Kernels& k, const Side& at) { k.sample_rows(at(logits), at(of_rows), sampling, at(ids)); });
      ids.expect_same_integers("ids");
    }
  }
}

TEST_P(LossTest, SampledTokensEqualTheCpus) {
  expect_tokens_of_the_cpu(dtype(), {1, 2, 31, 33, 1000, 1024, 8193});
}
TEST_P(LossTest, SampledTokensOfLargeVocabulariesEqualTheCpus) {
  expect_tokens_of_the_cpu(dtype(), {32000, 151936, 250880});
}

}  // namespace
}  // namespace tessera::testing
