// Tests operators on arrays with more than 2^31 elements. A large model needs such arrays for a batch of 131,072
// tokens. Most operators run twice: on a large array, and on a copy of its last rows. Both runs must give the same
// results for these rows, except that products and sums over rows may round differently. Arrays that an operator
// overwrites contain NaN before the run. The tests therefore find an operator with 32-bit indices, because it reads the
// wrong rows, or leaves NaN in rows that it should write.
#include "gpu_testing.h"

namespace tessera::testing {
namespace {

constexpr int64_t kTail = 400;  // the number of last rows, or last elements of a flat array, that are computed again
constexpr int64_t k2G = int64_t{1} << 31;

// Arrays on the GPU that a test frees at its end.
class LargeArrays : public ::testing::Test {
 protected:
  Kernels& k() { return *rig().gpu_kernels; }
  void needs_gib(int64_t gib) {
    if (cuda_memory_of(*rig().gpu).usable_bytes < gib << 30) GTEST_SKIP() << "needs " << gib << " GiB of GPU memory";
  }
  View array(Shape shape, DType dtype = DType::bf16) {
    const int64_t bytes = shape.num_elems() * static_cast<int64_t>(size_of(dtype));
    buffers_.push_back(rig().gpu->allocate(bytes, Category::activations));
    return buffers_.back().view(shape, dtype);
  }
  View random(Shape shape, DType dtype = DType::bf16) {
    const View x = array(shape, dtype);
    k().fill_uniform(x, -1, 1, 5, buffers_.size(), 0);
    return x;
  }
  View result(Shape shape, DType dtype = DType::bf16) {
    const View x = array(shape, dtype);
    k().fill(x, NAN);
    return x;
  }
  View zeros(Shape shape, DType dtype = DType::f32) {
    const View x = array(shape, dtype);
    k().fill(x, 0);
    return x;
  }
  View integers(const std::vector<int32_t>& values) {
    const View x = array({static_cast<int64_t>(values.size())}, DType::i32);
    rig().gpu->copy_from_host(values.data(), x);
    return x;
  }
  static View tail(View x) { return x.rows(x.shape[0] - kTail, x.shape[0]); }
  View copy_of_tail(View x) {
    const View copy = array(tail(x).shape, x.dtype);
    k().convert(tail(x), copy);
    return copy;
  }
  View result_of_tail(View x) { return result(tail(x).shape, x.dtype); }
  static std::vector<double> values(View x) {
    std::vector<std::byte> bits(static_cast<size_t>(x.bytes()));
    rig().gpu->copy_to_host(x, bits.data());
    std::vector<double> values(static_cast<size_t>(x.num_elems()));
    convert(bits.data(), x.dtype, values.data(), DType::f64, values.size());
    return values;
  }
  // Expects that the arrays differ by at most `relative` times the largest absolute value in `y`. A NaN fails.
  static void expect_same(View x, View y, const char* what, double relative = 0) {
    const auto actual = values(x), expected = values(y);
    double most = 0;
    for (const double value : expected) most = std::max(most, std::abs(value));
    ASSERT_GT(most, 0) << what;
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_LE(std::abs(actual[i] - expected[i]), relative * most) << what << " [" << i << "]";
    }
  }
  static void expect_same_tail(View large, View small, const char* what, double relative = 0) {
    expect_same(tail(large), small, what, relative);
  }

 private:
  std::vector<Buffer> buffers_;
};

TEST_F(LargeArrays, RowsByIndex) {
  needs_gib(20);
  if (IsSkipped()) return;
  constexpr int64_t C = 16384, N = k2G / C + 1000;
  const View x = random({N, C}), y = result({N, C});
  std::vector<int32_t> rows(N);
  for (int64_t i = 0; i < N; ++i) rows[static_cast<size_t>(i)] = static_cast<int32_t>(N - 1 - i);
  const View index = integers(rows);
  k().gather_rows(x, index, y);
  EXPECT_EQ(values(y.rows(0, 1)), values(x.rows(N - 1, N)));
  EXPECT_EQ(values(y.rows(N - 1, N)), values(x.rows(0, 1)));
  k().fill(y, NAN);
  k().scatter_rows(x, index, y);
  EXPECT_EQ(values(y.rows(N - 1, N)), values(x.rows(0, 1)));
  EXPECT_EQ(values(y.rows(0, 1)), values(x.rows(N - 1, N)));
}

TEST_F(LargeArrays, Norms) {
  needs_gib(40);
  if (IsSkipped()) return;
  constexpr int64_t C = 16384, N = k2G / C + 1000;
  const View x = random({N, C}), d_y = random({N, C}), weight = random({C}), bias = random({C});
  const View y = result({N, C}), d_x = result({N, C}), rstd = result({N, 1}, DType::f32),
             stats = result({N, 2}, DType::f32);
  const View d_weight = zeros({C}), d_bias = zeros({C}), small_x = copy_of_tail(x), small_d_y = copy_of_tail(d_y);
  const View small_y = result_of_tail(y), small_d_x = result_of_tail(d_x), small_rstd = result_of_tail(rstd),
             small_stats = result_of_tail(stats);
  k().rms_norm_forward({.x = x, .weight = weight, .epsilon = 1e-5, .y = y, .stats = rstd});
  k().rms_norm_forward({.x = small_x, .weight = weight, .epsilon = 1e-5, .y = small_y, .stats = small_rstd});
  expect_same_tail(y, small_y, "rms_norm y");
  expect_same_tail(rstd, small_rstd, "rms_norm rstd");
  k().rms_norm_backward({.d_y = d_y, .x = x, .weight = weight, .stats = rstd, .d_x = d_x, .d_weight = d_weight});
  k().rms_norm_backward(
      {.d_y = small_d_y, .x = small_x, .weight = weight, .stats = small_rstd, .d_x = small_d_x, .d_weight = d_weight});
  expect_same_tail(d_x, small_d_x, "rms_norm d_x");
  k().layer_norm_forward({.x = x, .weight = weight, .bias = bias, .epsilon = 1e-5, .y = y, .stats = stats});
  k().layer_norm_forward(
      {.x = small_x, .weight = weight, .bias = bias, .epsilon = 1e-5, .y = small_y, .stats = small_stats});
  expect_same_tail(y, small_y, "layer_norm y");
  k().fill(d_x, NAN);
  k().layer_norm_backward({.d_y = d_y,
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .stats = stats,
                           .d_x = d_x,
                           .d_weight = d_weight,
                           .d_bias = d_bias});
  k().layer_norm_backward({.d_y = small_d_y,
                           .x = small_x,
                           .weight = weight,
                           .bias = bias,
                           .stats = small_stats,
                           .d_x = small_d_x,
                           .d_weight = d_weight,
                           .d_bias = d_bias});
  expect_same_tail(d_x, small_d_x, "layer_norm d_x");
}

TEST_F(LargeArrays, Gates) {
  needs_gib(40);
  if (IsSkipped()) return;
  constexpr int64_t F = 14336, N = 131072;  // with these sizes of llama-3.1-8b, gate_up has 3.8e9 elements
  const View gate_up = random({N, 2 * F}), d_h = random({N, F}), h = result({N, F}), d_gate_up = result({N, 2 * F});
  const View small_gate_up = copy_of_tail(gate_up), small_d_h = copy_of_tail(d_h), small_h = result_of_tail(h),
             small_d_gate_up = result_of_tail(d_gate_up);
  k().gated_forward(gate_up, Activation::silu, h);
  k().gated_forward(small_gate_up, Activation::silu, small_h);
  expect_same_tail(h, small_h, "h");
  k().gated_backward({.d_h = d_h, .gate_up = gate_up, .activation = Activation::silu, .d_gate_up = d_gate_up});
  k().gated_backward(
      {.d_h = small_d_h, .gate_up = small_gate_up, .activation = Activation::silu, .d_gate_up = small_d_gate_up});
  expect_same_tail(d_gate_up, small_d_gate_up, "d_gate_up");
}

// The sequences fill the array. The last sequence has kTail tokens, the third sequence has 4,096 tokens, and every
// other sequence has at most 256 tokens.
TEST_F(LargeArrays, RotationAndAttention) {
  needs_gib(40);
  if (IsSkipped()) return;
  const AttentionShape shape{128, 128, QkvLayout::blocked, {}, 16, 0};
  const int64_t W = shape.row_channels(), C = shape.channels(), N = k2G / W + 4096;
  std::vector<int32_t> starts{0};
  for (int64_t at = 0; at + 256 + kTail <= N;) {
    at += at == 512 ? 4096 : 256;
    starts.push_back(static_cast<int32_t>(at));
  }
  starts.push_back(static_cast<int32_t>(N - kTail));
  starts.push_back(static_cast<int32_t>(N));
  const View qkv = random({N, W}), d_o = random({N, C}), o = result({N, C}), log_sum_exp = result({N, 128}, DType::f32),
             d_qkv = result({N, W}), rotations = random({N, 128}, DType::f32);
  const View small_qkv = copy_of_tail(qkv), small_d_o = copy_of_tail(d_o), small_o = result_of_tail(o),
             small_log_sum_exp = result_of_tail(log_sum_exp), small_d_qkv = result_of_tail(d_qkv),
             small_rotations = copy_of_tail(rotations);
  const View all = integers(starts), small = integers({0, static_cast<int32_t>(kTail)});
  k().attention_forward({.qkv = qkv, .starts = all, .shape = shape, .o = o, .log_sum_exp = log_sum_exp});
  k().attention_forward(
      {.qkv = small_qkv, .starts = small, .shape = shape, .o = small_o, .log_sum_exp = small_log_sum_exp});
  expect_same_tail(o, small_o, "o");
  expect_same_tail(log_sum_exp, small_log_sum_exp, "log_sum_exp");
  const View workspace = result({attention_workspace_elems(qkv.dtype, shape, N)}, DType::f32);
  k().attention_backward({.qkv = qkv,
                          .o = o,
                          .log_sum_exp = log_sum_exp,
                          .d_o = d_o,
                          .starts = all,
                          .shape = shape,
                          .d_qkv = d_qkv,
                          .workspace = workspace});
  k().attention_backward({.qkv = small_qkv,
                          .o = small_o,
                          .log_sum_exp = small_log_sum_exp,
                          .d_o = small_d_o,
                          .starts = small,
                          .shape = shape,
                          .d_qkv = small_d_qkv,
                          .workspace = workspace});
  expect_same_tail(d_qkv, small_d_qkv, "d_qkv");
  k().rotate_heads({.qkv = qkv, .rotations = rotations, .shape = shape, .y = d_qkv});
  k().rotate_heads({.qkv = small_qkv, .rotations = small_rotations, .shape = shape, .y = small_d_qkv});
  expect_same_tail(d_qkv, small_d_qkv, "rotated");
  k().rotate_heads_backward({.d_y = d_qkv, .rotations = rotations, .shape = shape, .d_qkv = d_qkv});
  k().rotate_heads_backward({.d_y = small_d_qkv, .rotations = small_rotations, .shape = shape, .d_qkv = small_d_qkv});
  expect_same_tail(d_qkv, small_d_qkv, "rotated back");
}

// cuBLASLt may choose different algorithms for the large array and for its last rows. These algorithms may add the
// terms of a product in different orders. The f32 sums then differ slightly, and may be rounded to different bf16
// values.
TEST_F(LargeArrays, Products) {
  needs_gib(20);
  if (IsSkipped()) return;
  constexpr int64_t O = 28672, I = 64, N = k2G / O + 1000;
  const View x = random({N, I}), weight = random({O, I}), bias = random({O}), y = result({N, O});
  const View small_x = copy_of_tail(x), small_y = result_of_tail(y);
  constexpr double kSums = 1e-3;  // tolerance for f32 sums in different orders, relative to the largest element
  k().linear_forward({.x = x, .weight = weight, .bias = bias, .y = y});
  k().linear_forward({.x = small_x, .weight = weight, .bias = bias, .y = small_y});
  expect_same_tail(y, small_y, "y", kSums + 2 * roundoff(DType::bf16));
  // From here, y and small_y are used as gradients. The gradients of all rows before the last rows are zero. A sum over
  // all rows must therefore equal the sum over the last rows.
  k().fill(y, 0);
  k().convert(small_y, tail(y));
  const View d_weight = zeros({O, I}), d_bias = zeros({O}), small_d_weight = zeros({O, I}), small_d_bias = zeros({O}),
             d_x = result({N, I}), small_d_x = result_of_tail(d_x);
  k().linear_backward_weight(y, x, false, d_weight);
  k().linear_backward_weight(small_y, small_x, false, small_d_weight);
  const BiasGradient sums[] = {{y, d_bias}}, small_sums[] = {{small_y, small_d_bias}};
  k().linear_backward_bias(sums);
  k().linear_backward_bias(small_sums);
  expect_same(d_weight, small_d_weight, "d_weight", kSums);
  expect_same(d_bias, small_d_bias, "d_bias", kSums);
  k().linear_backward_input({.d_y = y, .weight = weight, .d_x = d_x});
  k().linear_backward_input({.d_y = small_y, .weight = weight, .d_x = small_d_x});
  expect_same_tail(d_x, small_d_x, "d_x", kSums + 2 * roundoff(DType::bf16));
}

TEST_F(LargeArrays, Loss) {
  needs_gib(12);
  if (IsSkipped()) return;
  constexpr int64_t V = 128256, M = k2G / V + 1000;
  const View logits = random({M, V}), small = copy_of_tail(logits), loss = zeros({1}, DType::f64);
  std::vector<int32_t> targets(M);
  for (int64_t i = 0; i < M; ++i) targets[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7919 % V);
  const View all = integers(targets), last = integers({targets.end() - kTail, targets.end()});
  const View ids = array({M}, DType::i32), small_ids = array({kTail}, DType::i32);
  k().argmax_rows(logits, ids);
  k().argmax_rows(small, small_ids);
  std::vector<int32_t> actual(kTail), expected(kTail);
  rig().gpu->copy_to_host(tail(ids), actual.data());
  rig().gpu->copy_to_host(small_ids, expected.data());
  EXPECT_EQ(actual, expected);
  k().softmax_cross_entropy(logits, all, 0.5, loss);
  k().softmax_cross_entropy(small, last, 0.5, loss);
  expect_same_tail(logits, small, "d_logits");
}

TEST_F(LargeArrays, CompleteArrays) {
  needs_gib(24);
  if (IsSkipped()) return;
  constexpr int64_t P = k2G + 4096;
  const View x = random({P}), sum = result({P}, DType::f32), small = copy_of_tail(x), small_sum = result_of_tail(sum);
  k().convert(x, sum);
  k().convert(small, small_sum);
  expect_same_tail(sum, small_sum, "convert");
  k().add(x, sum);
  k().add(small, small_sum);
  expect_same_tail(sum, small_sum, "add");
  k().fill(sum, 0);
  k().convert(small_sum, tail(sum));
  const View squares = zeros({1}, DType::f64), small_squares = zeros({1}, DType::f64);
  k().add_sum_of_squares(sum, squares);
  k().add_sum_of_squares(small_sum, small_squares);
  EXPECT_NEAR(values(squares)[0], values(small_squares)[0], 1e-9);
  EXPECT_GT(values(squares)[0], 0);
}

}  // namespace
}  // namespace tessera::testing
