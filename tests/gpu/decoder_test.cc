// Compares the operators of decoders such as Llama's with independent references in double: RMS norm, rotary positions
// with norms of heads, gated layers. In loops over two turns, the second turn must give the same bits as the first.
#include "gpu_testing.h"

namespace tessera::testing {
namespace {

using Values = std::vector<double>;

void expect_close(const Tensor& actual, const Values& expected, double tolerance, const char* what) {
  const auto values = actual.values();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(values[i] - expected[i]), tolerance)
        << what << " [" << i << "] of " << values.size() << ": " << values[i] << " instead of " << expected[i];
  }
}
double largest(const Values& values) {
  double most = 1;
  for (const double x : values) most = std::max(most, std::abs(x));
  return most;
}

// Computes x · rstd · weight for C elements and returns rstd.
double norm(const double* x, const double* weight, size_t C, double epsilon, double* y) {
  double squares = 0;
  for (size_t c = 0; c < C; ++c) squares += x[c] * x[c];
  const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + epsilon);
  for (size_t c = 0; c < C; ++c) y[c] = x[c] * rstd * weight[c];
  return rstd;
}
// Computes the gradients of norm(): writes d_x and adds to d_weight.
void norm_backward(const double* d_y, const double* x, const double* weight, size_t C, double rstd, double* d_x,
                   double* d_weight) {
  double sum = 0;
  for (size_t c = 0; c < C; ++c) {
    sum += d_y[c] * weight[c] * x[c] * rstd;
    d_weight[c] += d_y[c] * x[c] * rstd;
  }
  for (size_t c = 0; c < C; ++c) d_x[c] = rstd * (d_y[c] * weight[c] - x[c] * rstd * sum / static_cast<double>(C));
}

class DecoderTest : public TypedTest {
 protected:
  double error(int64_t terms) const {
    return arithmetic_roundoff(dtype()) * (32 + std::sqrt(static_cast<double>(terms)));
  }
};
TESSERA_FOR_ALL_TYPES(DecoderTest);

TEST_P(DecoderTest, RmsNorm) {
  std::vector<Shape> shapes = {
      {1, 8},    {130, 30},  {7, 64},      {1000, 96},  {37, 1024},
      {5, 4096}, {600, 896}, {1200, 2560}, {300, 2048}, {3, dtype() == DType::f64 ? 8192 : 16384}};
  RandomStream random(5, 2);
  for (int i = 0; i < 6; ++i) {
    shapes.push_back({1 + static_cast<int64_t>(random.next_uniform() * 400),
                      1 + static_cast<int64_t>(random.next_uniform() * 1500)});
  }
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(::testing::Message() << shape[0] << " x " << shape[1]);
    const int64_t N = shape[0], C = shape[1];
    const auto width = static_cast<size_t>(C);
    for (const DType gradient : gradient_types()) {
      Tensor x = random_tensor(dtype(), shape, 1), weight = random_tensor(dtype(), {C}, 2),
             d_y = random_tensor(dtype(), shape, 3), residual = random_tensor(dtype(), shape, 4),
             d_weight = random_tensor(gradient, {C}, 5), y(dtype(), shape), again(dtype(), shape), d_x(dtype(), shape),
             rstd(stats(), {N, 1});
      Values expected_y(x.expected().size()), expected_d_x(expected_y), expected_d_weight = d_weight.expected();
      for (size_t row = 0; row < static_cast<size_t>(N); ++row) {
        const size_t at = row * width;
        const double r = norm(&x.expected()[at], weight.expected().data(), width, 1e-5, &expected_y[at]);
        norm_backward(&d_y.expected()[at], &x.expected()[at], weight.expected().data(), width, r, &expected_d_x[at],
                      expected_d_weight.data());
        for (size_t c = 0; c < width; ++c) expected_d_x[at + c] += residual.expected()[at + c];
      }
      Kernels& k = *rig().gpu_kernels;
      std::vector<std::byte> first_weight, first_x;
      for (int turn = 0; turn < 2; ++turn) {
        d_weight.reset();
        k.rms_norm_forward({.x = x.gpu(), .weight = weight.gpu(), .epsilon = 1e-5, .y = y.gpu(), .stats = rstd.gpu()});
        k.rms_norm_backward({.d_y = d_y.gpu(),
                             .x = x.gpu(),
                             .weight = weight.gpu(),
                             .stats = rstd.gpu(),
                             .residual = residual.gpu(),
                             .d_x = d_x.gpu(),
                             .d_weight = d_weight.gpu(),
                             .y = again.gpu()});
        if (turn == 0) first_weight = d_weight.bits(), first_x = d_x.bits();
      }
      EXPECT_EQ(d_weight.bits(), first_weight);
      EXPECT_EQ(d_x.bits(), first_x);
      EXPECT_EQ(again.bits(), y.bits());
      const double scale = largest(expected_y), d_scale = largest(expected_d_x);
      expect_close(y, expected_y, (8 * error(C) + roundoff(dtype())) * scale, "y");
      expect_close(d_x, expected_d_x, (16 * error(C) + roundoff(dtype())) * d_scale, "d_x");
      const double columns = arithmetic_roundoff(dtype()) * (64 + static_cast<double>(N));
      expect_close(d_weight, expected_d_weight, (8 * columns + 2 * roundoff(gradient)) * largest(expected_d_weight),
                   "d_weight");
      // The results have the same bits if they overwrite an input. The two backward calls also omit the outputs
      // d_weight and y.
      k.rms_norm_backward({.d_y = d_y.gpu(),
                           .x = x.gpu(),
                           .weight = weight.gpu(),
                           .stats = rstd.gpu(),
                           .residual = residual.gpu(),
                           .d_x = residual.gpu(),
                           .d_weight = {}});
      EXPECT_EQ(residual.bits(), first_x);
      residual.reset();
      k.rms_norm_backward({.d_y = d_y.gpu(),
                           .x = x.gpu(),
                           .weight = weight.gpu(),
                           .stats = rstd.gpu(),
                           .residual = residual.gpu(),
                           .d_x = d_y.gpu(),
                           .d_weight = {}});
      EXPECT_EQ(d_y.bits(), first_x);
      k.rms_norm_forward({.x = x.gpu(), .weight = weight.gpu(), .epsilon = 1e-5, .y = x.gpu()});
      EXPECT_EQ(x.bits(), y.bits());
    }
  }
}

TEST_P(DecoderTest, RotaryAngles) {
  const std::vector<int32_t> at = {0, 1, 2, 77, 4095, 131071};
  Tensor positions(at), frequencies(DType::f32, {4}, {1, 0.1, 0.01, 1e-5}), rotations(stats(), {6, 8});
  rig().gpu_kernels->rotary_angles(positions.gpu(), frequencies.gpu(), 1.25, rotations.gpu());
  Values expected(48);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      const float angle = static_cast<float>(at[i]) * static_cast<float>(frequencies.expected()[j]);
      expected[i * 8 + j] = 1.25 * std::cos(double{angle});
      expected[i * 8 + 4 + j] = 1.25 * std::sin(double{angle});
    }
  }
  expect_close(rotations, expected, 4 * roundoff(stats()), "rotations");
}

struct Turned {
  int64_t rows, heads, kv_heads, head_dim;
};

TEST_P(DecoderTest, RotateHeads) {
  std::vector<Turned> cases = {{1, 1, 1, 2},   {5, 3, 1, 64},   {300, 8, 2, 128}, {77, 4, 4, 80},  {33, 14, 2, 64},
                               {40, 4, 1, 72}, {20, 2, 1, 512}, {129, 6, 3, 96},  {19, 16, 2, 256}};
  RandomStream random(6, 2);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.next_uniform() * static_cast<double>(n)); };
  for (int i = 0; i < 6; ++i) {
    const int64_t kv_heads = 1 + below(4);
    cases.push_back({1 + below(500), kv_heads << below(4), kv_heads, 2 * (1 + below(70))});
  }
  for (const auto& [N, H, K, D] : cases) {
    SCOPED_TRACE(::testing::Message() << N << " rows, " << H << "/" << K << " heads of " << D);
    const int64_t W = (H + 2 * K) * D;
    const auto d = static_cast<size_t>(D);
    const AttentionShape shape{H, D, QkvLayout::blocked, {}, K, 0};
    for (const bool has_norms : {false, true}) {
      Tensor qkv = random_tensor(dtype(), {N, W}, 1), rotations = random_tensor(stats(), {N, D}, 2),
             d_y = random_tensor(dtype(), {N, W}, 3), query_weight = random_tensor(dtype(), {D}, 4),
             key_weight = random_tensor(dtype(), {D}, 5), d_query_weight = random_tensor(stats(), {D}, 6),
             d_key_weight = random_tensor(stats(), {D}, 7), y(dtype(), {N, W}), d_qkv(dtype(), {N, W});
      Values expected_y = qkv.expected(), expected_d = d_y.expected(), d_queries = d_query_weight.expected(),
             d_keys = d_key_weight.expected(), normal(d), gradient(d);
      for (size_t unit = 0; unit < static_cast<size_t>(N * (H + K)); ++unit) {
        const size_t row = unit / static_cast<size_t>(H + K), head = unit % static_cast<size_t>(H + K),
                     at = row * static_cast<size_t>(W) + head * d;
        const double *const x = &qkv.expected()[at], *const turn = &rotations.expected()[row * d],
                            *const weight =
                                (head < static_cast<size_t>(H) ? query_weight : key_weight).expected().data();
        Values& d_weight = head < static_cast<size_t>(H) ? d_queries : d_keys;
        double rstd = 1;
        std::copy(x, x + d, normal.begin());
        if (has_norms) rstd = norm(x, weight, d, 1e-6, normal.data());
        for (size_t j = 0; j < d / 2; ++j) {
          const double c = turn[j], s = turn[d / 2 + j], a = d_y.expected()[at + j], b = d_y.expected()[at + d / 2 + j];
          expected_y[at + j] = normal[j] * c - normal[d / 2 + j] * s;
          expected_y[at + d / 2 + j] = normal[d / 2 + j] * c + normal[j] * s;
          gradient[j] = a * c + b * s;
          gradient[d / 2 + j] = b * c - a * s;
        }
        std::copy(gradient.begin(), gradient.end(), expected_d.begin() + static_cast<int64_t>(at));
        if (has_norms) norm_backward(gradient.data(), x, weight, d, rstd, &expected_d[at], d_weight.data());
      }
      Kernels& k = *rig().gpu_kernels;
      HeadNorms norms;
      if (has_norms) norms = {query_weight.gpu(), key_weight.gpu(), 1e-6};
      const View inputs = has_norms ? qkv.gpu() : View{};
      std::vector<std::byte> first_queries, first_keys, first_d;
      for (int turn = 0; turn < 2; ++turn) {
        d_query_weight.reset();
        d_key_weight.reset();
        k.rotate_heads({.qkv = qkv.gpu(), .rotations = rotations.gpu(), .shape = shape, .norms = norms, .y = y.gpu()});
        k.rotate_heads_backward({.d_y = d_y.gpu(),
                                 .qkv = inputs,
                                 .rotations = rotations.gpu(),
                                 .shape = shape,
                                 .norms = norms,
                                 .d_qkv = d_qkv.gpu(),
                                 .d_query_weight = has_norms ? d_query_weight.gpu() : View{},
                                 .d_key_weight = has_norms ? d_key_weight.gpu() : View{}});
        if (turn > 0) continue;
        first_queries = d_query_weight.bits(), first_keys = d_key_weight.bits(), first_d = d_qkv.bits();
      }
      EXPECT_EQ(d_query_weight.bits(), first_queries);
      EXPECT_EQ(d_key_weight.bits(), first_keys);
      EXPECT_EQ(d_qkv.bits(), first_d);
      expect_close(y, expected_y, (16 * error(D) + roundoff(dtype())) * largest(expected_y), "y");
      expect_close(d_qkv, expected_d, (32 * error(D) + roundoff(dtype())) * largest(expected_d), "d_qkv");
      const double sums = arithmetic_roundoff(dtype()) * (128 + static_cast<double>(N * H));
      expect_close(d_query_weight, d_queries, 8 * sums * largest(d_queries), "d_query_weight");
      expect_close(d_key_weight, d_keys, 8 * sums * largest(d_keys), "d_key_weight");
      k.rotate_heads_backward({.d_y = d_y.gpu(),
                               .qkv = inputs,
                               .rotations = rotations.gpu(),
                               .shape = shape,
                               .norms = norms,
                               .d_qkv = d_y.gpu()});
      EXPECT_EQ(d_y.bits(), first_d) << "in place";
      if (has_norms) continue;
      k.rotate_heads({.qkv = qkv.gpu(), .rotations = rotations.gpu(), .shape = shape, .norms = norms, .y = qkv.gpu()});
      EXPECT_EQ(qkv.bits(), y.bits()) << "in place";
    }
  }
}

TEST_P(DecoderTest, GatedLayers) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    for (const Shape& shape : {Shape{1, 8}, Shape{13, 30}, Shape{300, 256}, Shape{70, 1001}, Shape{40, 8192}}) {
      const int64_t N = shape[0], F = shape[1];
      Values inputs = random_values(N * 2 * F, 1);
      for (double& x : inputs) x *= 6;
      Tensor gate_up(dtype(), {N, 2 * F}, inputs), d_h = random_tensor(dtype(), shape, 2), h(dtype(), shape),
                                                   again(dtype(), shape), d_gate_up(dtype(), {N, 2 * F});
      Values expected_h(static_cast<size_t>(N * F)), expected_d(static_cast<size_t>(2 * N * F));
      for (size_t i = 0; i < expected_h.size(); ++i) {
        const auto f = static_cast<size_t>(F), gate = i / f * 2 * f + i % f, up = gate + f;
        const double x = gate_up.expected()[gate], u = gate_up.expected()[up], g = d_h.expected()[i];
        double s = 1 / (1 + std::exp(-x)), slope = s + x * s * (1 - s);
        if (activation == Activation::gelu_tanh) {
          const double inner = 0.79788456 * x * (1 + 0.044715 * x * x), t = std::tanh(inner);
          s = 0.5 * (1 + t);
          slope = s + 0.5 * x * (1 - t * t) * 0.79788456 * (1 + 3 * 0.044715 * x * x);
        }
        expected_h[i] = x * s * u;
        expected_d[gate] = g * u * slope;
        expected_d[up] = g * x * s;
      }
      Kernels& k = *rig().gpu_kernels;
      k.gated_forward(gate_up.gpu(), activation, h.gpu());
      k.gated_backward({.d_h = d_h.gpu(),
                        .gate_up = gate_up.gpu(),
                        .activation = activation,
                        .d_gate_up = d_gate_up.gpu(),
                        .h = again.gpu()});
      // For 16-bit types, the kernels use approximate exponentials and divisions (gated.cu). The test allows an error
      // of 2^-18 for them, which is far less than the rounding of a 16-bit result.
      const double error = size_of(dtype()) == 2 ? 0x1p-18 : 64 * arithmetic_roundoff(dtype());
      expect_close(h, expected_h, (error + roundoff(dtype())) * largest(expected_h), "h");
      expect_close(d_gate_up, expected_d, (error + roundoff(dtype())) * largest(expected_d), "d_gate_up");
      EXPECT_EQ(again.bits(), h.bits());
      k.gated_backward({.d_h = d_h.gpu(),
                        .gate_up = gate_up.gpu(),
                        .activation = activation,
                        .d_gate_up = gate_up.gpu(),
                        .h = d_h.gpu()});
      EXPECT_EQ(gate_up.bits(), d_gate_up.bits()) << "in place";
      EXPECT_EQ(d_h.bits(), h.bits()) << "in place";
    }
  }
}

}  // namespace
}  // namespace tessera::testing
