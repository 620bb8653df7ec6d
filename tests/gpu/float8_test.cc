// Matrices in 8 bits: a GPU and a CPU round to the same bits, and products use the rounded values.
#include "tessera/base/float8.h"

#include "gpu_testing.h"

namespace tessera::testing {
namespace {

// A matrix in 8 bits on one device, and its values in host memory. It starts with ones, because nobody reads some of
// the scales (float8_scales()).
class Matrix8 {
 public:
  Matrix8(Device& device, int64_t rows, int64_t columns, bool squares = false)
      : device_(device),
        shape_{rows, columns},
        scale_shape_(float8_scales(rows, columns, squares)),
        squares_(squares),
        codes(static_cast<size_t>(rows * columns)),
        scales(static_cast<size_t>(scale_shape_.num_elems()), 1),
        values_(device.allocate(rows * columns, Category::workspace)),
        scales_(device.allocate(scale_shape_.num_elems() * 4, Category::workspace)) {
    device.copy_from_host(scales.data(), matrix().scales);
  }
  Float8Matrix matrix() const {
    return {values_.view(shape_, DType::e4m3), scales_.view(scale_shape_, DType::f32), squares_};
  }
  void fetch() {
    device_.copy_to_host(matrix().values, codes.data());
    device_.copy_to_host(matrix().scales, scales.data());
  }
  void put_scales() { device_.copy_from_host(scales.data(), matrix().scales); }
  double at(int64_t row, int64_t column) const {
    const int64_t block = column / kFloat8Block,
                  scale = squares_ ? row / kFloat8Block * scale_shape_[1] + block : block * scale_shape_[1] + row;
    return double{e4m3_to_f32(codes[static_cast<size_t>(row * shape_[1] + column)]) *
                  scales[static_cast<size_t>(scale)]};
  }

 private:
  Device& device_;
  Shape shape_, scale_shape_;
  bool squares_;

 public:
  std::vector<uint8_t> codes;
  std::vector<float> scales;

 private:
  Buffer values_, scales_;
};

void expect_equal(Matrix8& a, Matrix8& b) {
  a.fetch(), b.fetch();
  EXPECT_EQ(a.scales, b.scales);
  EXPECT_EQ(a.codes, b.codes);
}

// Values of very different sizes, with blocks of zeros, on both devices.
struct Source {
  Source(int64_t rows, int64_t columns, uint64_t seed, DType dtype = DType::bf16) : shape{rows, columns} {
    std::vector<double> values = random_values(rows * columns, seed);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto block = static_cast<int>(i / 3000 + i % static_cast<size_t>(columns) / 50);
      values[i] *= block % 5 == 4 ? 0 : std::exp2(block % 7 * 6 - 20);
    }
    std::vector<std::byte> bits(values.size() * size_of(dtype));
    convert(values.data(), DType::f64, bits.data(), dtype, values.size());
    for (auto& [device, buffer] : {std::pair{rig().cpu.get(), &cpu_}, std::pair{rig().gpu.get(), &gpu_}}) {
      *buffer = device->allocate(static_cast<int64_t>(bits.size()), Category::workspace);
      device->copy_from_host(bits.data(), buffer->view(shape, dtype));
    }
    cpu = cpu_.view(shape, dtype), gpu = gpu_.view(shape, dtype);
  }

  Shape shape;
  View cpu, gpu;

 private:
  Buffer cpu_, gpu_;
};

TEST(Float8OnGpu, RoundsToTheBitsOfACpu) {
  for (const auto& [R, K] : {std::pair<int64_t, int64_t>{1, 16}, {128, 128}, {130, 272}, {96, 1040}, {515, 144}}) {
    for (const bool squares : {false, true}) {
      SCOPED_TRACE(::testing::Message() << R << " x " << K << (squares ? ", squares" : ""));
      const Source x(R, K, 7);
      Matrix8 cpu_rows(*rig().cpu, R, K, squares), cpu_columns(*rig().cpu, K, float8_terms(R), squares),
          gpu_rows(*rig().gpu, R, K, squares), gpu_columns(*rig().gpu, K, float8_terms(R), squares);
      rig().cpu_kernels->quantize({.x = x.cpu, .rows = cpu_rows.matrix(), .columns = cpu_columns.matrix()});
      rig().gpu_kernels->quantize({.x = x.gpu, .rows = gpu_rows.matrix(), .columns = gpu_columns.matrix()});
      expect_equal(cpu_rows, gpu_rows);
      expect_equal(cpu_columns, gpu_columns);
      Matrix8 only(*rig().gpu, R, K, squares);
      rig().gpu_kernels->quantize({.x = x.gpu, .rows = only.matrix()});
      expect_equal(only, gpu_rows);
    }
  }
}

TEST(Float8OnGpu, PartsAndTransposesHaveTheBitsOfTheWhole) {
  for (const auto& [R, K, parts] : {std::array<int64_t, 3>{128, 128, 1}, {16, 48, 2}, {272, 400, 3}, {1040, 144, 5}}) {
    SCOPED_TRACE(::testing::Message() << R << " x " << K << " in " << parts << " parts");
    const Source x(R, K, 7);
    Matrix8 whole(*rig().cpu, R, K, true), across(*rig().cpu, K, R, true), own(*rig().gpu, R, K, true),
        transposed(*rig().gpu, K, R, true);
    rig().cpu_kernels->quantize(
        {.x = x.cpu, .rows = whole.matrix(), .columns = across.matrix(), .kind_of_columns = Float8ScaleKind::quotient});
    // The matrix begins after 32 elements of something else, and 16 others follow it.
    const int64_t n = 32 + R * K + 16, size = (n / 16 + parts - 1) / parts * 16;
    const Float8Matrix to = own.matrix();
    const int64_t num_scales = to.scales.num_elems();
    const Buffer values = rig().gpu->allocate(2 * n, Category::workspace),
                 codes = rig().gpu->allocate(n, Category::workspace),
                 largest = rig().gpu->allocate(4 * parts * num_scales, Category::workspace);
    const View all = values.view({n}, DType::bf16), all_codes = codes.view({n}, DType::e4m3),
               of_parts = largest.view({parts, num_scales}, DType::f32);
    const auto stream = rig().gpu->make_stream();
    rig().gpu_kernels->fill(all, 3);
    stream->wait(rig().gpu->compute_stream().record());
    stream->copy({x.gpu.data, DType::bf16, {R * K}}, all.rows(32, 32 + R * K));
    const std::vector<Float8Place> places = {{32, R, K, 0}};
    const auto shard = [&](int64_t part) {
      const int64_t first = std::min(n, part * size);
      return Kernels::Float8Shard{
          .values = all.rows(first, std::min(n, first + size)), .first = first, .places = places};
    };
    for (int64_t part = 0; part < parts; ++part) {
      const View row = of_parts.rows(part, part + 1);
      rig().gpu_kernels->largest_of_squares(*stream, shard(part), {row.data, DType::f32, {num_scales}});
    }
    for (int64_t part = 0; part < parts; ++part) {
      const Kernels::Float8Shard of = shard(part);
      rig().gpu_kernels->quantize_shard(*stream, of, of_parts, {to.scales.data, DType::f32, {num_scales}},
                                        all_codes.rows(of.first, of.first + of.values.num_elems()));
    }
    stream->copy(all_codes.rows(32, 32 + R * K), {to.values.data, DType::e4m3, {R * K}});
    rig().gpu->compute_stream().wait(stream->record());
    rig().gpu_kernels->transpose8(to, transposed.matrix());
    // The scales that pad a row are unspecified.
    const auto expect_same_values = [](Matrix8& a, Matrix8& b, int64_t rows, int64_t columns) {
      a.fetch(), b.fetch();
      EXPECT_EQ(a.codes, b.codes);
      for (int64_t r = 0; r < rows; r += kFloat8Block) {
        for (int64_t k = 0; k < columns; k += kFloat8Block) EXPECT_EQ(a.at(r, k), b.at(r, k)) << r << " " << k;
      }
    };
    expect_same_values(whole, own, R, K);
    expect_same_values(across, transposed, K, R);
  }
}

// A sum of `length` products of 8-bit values. Hopper's tensor cores add fp8 products with at least 13 bits behind the
// point of the largest one, for 128 terms. The sums of 128 terms are added in f32.
TEST(Float8OnGpu, ProductsUseTheRoundedValues) {
  if (!rig().gpu_kernels->refusal_of_float8().empty()) GTEST_SKIP() << "the GPU has no products in 8 bits";
  for (const auto& [N, I, O] : {std::array<int64_t, 3>{32, 128, 256}, {160, 272, 144}, {256, 1024, 512}}) {
    SCOPED_TRACE(::testing::Message() << N << " rows, " << I << " to " << O);
    const Source x(N, I, 1), weight(O, I, 2), d_y(N, O, 3);
    Device& gpu = *rig().gpu;
    Matrix8 x_rows(gpu, N, I), x_columns(gpu, I, float8_terms(N), true), w_rows(gpu, O, I, true),
        w_columns(gpu, I, O, true), d_rows(gpu, N, O), d_columns(gpu, O, float8_terms(N));
    Kernels& ops = *rig().gpu_kernels;
    ops.quantize({.x = x.gpu, .rows = x_rows.matrix(), .columns = x_columns.matrix()});
    ops.quantize({.x = weight.gpu, .rows = w_rows.matrix(), .columns = w_columns.matrix()});
    ops.quantize({.x = d_y.gpu, .rows = d_rows.matrix(), .columns = d_columns.matrix()});
    for (Matrix8* matrix : {&x_rows, &x_columns, &w_rows, &w_columns, &d_rows, &d_columns}) matrix->fetch();
    const auto expect = [&](View result, int64_t length, const Matrix8& left, const Matrix8& right) {
      const int64_t rows = result.shape[0], columns = result.shape[1];
      std::vector<std::byte> bits(static_cast<size_t>(result.bytes()));
      gpu.copy_to_host(result, bits.data());
      std::vector<double> actual(static_cast<size_t>(rows * columns));
      convert(bits.data(), result.dtype, actual.data(), DType::f64, actual.size());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          double sum = 0, largest = 0;
          for (int64_t k = 0; k < length; ++k) {
            const double term = left.at(r, k) * right.at(c, k);
            sum += term, largest = std::max(largest, std::abs(term));
          }
          const double tolerance =
              roundoff(result.dtype) * std::abs(sum) + static_cast<double>(length) * 0x1p-13 * largest;
          ASSERT_NEAR(actual[static_cast<size_t>(r * columns + c)], sum, tolerance) << r << " " << c;
        }
      }
    };
    const Buffer y = gpu.allocate(N * O * 2, Category::workspace), d_x = gpu.allocate(N * I * 2, Category::workspace),
                 d_weight = gpu.allocate(O * I * 4, Category::workspace);
    const View y_view = y.view({N, O}, DType::bf16), d_x_view = d_x.view({N, I}, DType::bf16);
    ops.linear_forward({.x = {}, .weight = {}, .x8 = x_rows.matrix(), .weight8 = w_rows.matrix(), .y = y_view});
    expect(y_view, I, x_rows, w_rows);
    // With a dropout, the product has a kernel of its own, and a sum in place is computed in pieces of rows.
    ops.fill(y_view, 0);
    const std::vector<int64_t> ids(static_cast<size_t>(N));
    const Buffer row_ids = gpu.allocate(N * 8, Category::workspace);
    gpu.copy_from_host(ids.data(), row_ids.view({N}, DType::i64));
    ops.linear_forward({.x = {},
                        .weight = {},
                        .x8 = x_rows.matrix(),
                        .weight8 = w_rows.matrix(),
                        .epilogue = {Activation::none, {1e-30f, 1, 0, row_ids.view({N}, DType::i64)}, y_view},
                        .y = y_view});
    expect(y_view, I, x_rows, w_rows);
    ops.linear_backward_input(
        {.d_y = {}, .weight = {}, .d_y8 = d_rows.matrix(), .weight8 = w_columns.matrix(), .d_x = d_x_view});
    expect(d_x_view, O, d_rows, w_columns);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const View view = d_weight.view({O, I}, dtype);
      ops.linear_backward_weight8(d_columns.matrix(), x_columns.matrix(), true, view);
      expect(view, N, d_columns, x_columns);
    }
  }
}

// A sum in place is computed in pieces, if it needs a kernel of its own.
TEST(Float8OnGpu, PiecesOfRowsGiveTheSameBits) {
  if (!rig().gpu_kernels->refusal_of_float8().empty()) GTEST_SKIP() << "the GPU has no products in 8 bits";
  const int64_t N = 70000, I = 144, O = 272;
  Device& gpu = *rig().gpu;
  Kernels& ops = *rig().gpu_kernels;
  const Source x(N, I, 1), weight(O, I, 2), residual(N, O, 3);
  Matrix8 x_rows(gpu, N, I), w_rows(gpu, O, I, true);
  ops.quantize({.x = x.gpu, .rows = x_rows.matrix()});
  ops.quantize({.x = weight.gpu, .rows = w_rows.matrix()});
  const std::vector<int64_t> ids(static_cast<size_t>(N), 5);
  const Buffer row_ids = gpu.allocate(N * 8, Category::workspace), y = gpu.allocate(N * O * 2, Category::workspace);
  gpu.copy_from_host(ids.data(), row_ids.view({N}, DType::i64));
  const auto result = [&](View sum) {
    ops.linear_forward({.x = {},
                        .weight = {},
                        .x8 = x_rows.matrix(),
                        .weight8 = w_rows.matrix(),
                        .epilogue = {Activation::none, {0.25f, 1, 0, row_ids.view({N}, DType::i64)}, residual.gpu},
                        .y = sum});
    std::vector<uint16_t> bits(static_cast<size_t>(N * O));
    gpu.copy_to_host(sum, bits.data());
    return bits;
  };
  const std::vector<uint16_t> apart = result(y.view({N, O}, DType::bf16));
  EXPECT_TRUE(apart == result(residual.gpu));
}

// Norms and gated layers that round to 8 bits give the bits of their calls in bf16 and of quantize().
TEST(Float8OnGpu, FusedCallsEqualTheirParts) {
  Device& gpu = *rig().gpu;
  Kernels& ops = *rig().gpu_kernels;
  for (const auto& [N, C, F] :
       {std::array<int64_t, 3>{1, 16, 128}, {128, 128, 256}, {515, 272, 384}, {96, 2064, 128}}) {
    SCOPED_TRACE(::testing::Message() << N << " rows, " << C << " channels, " << F << " inner");
    const auto array = [&](int64_t rows, int64_t columns) {
      return gpu.allocate(rows * columns * 4, Category::workspace);
    };
    const Source x(N, C, 1), parameters(2, C, 2), gate_up(N, 2 * F, 4), d_h(N, F, 5);
    const Buffer y = array(N, C), stats = array(N, 2), wide_h = array(N, F), d_gate_up = array(N, 2 * F);
    for (const bool layer : {false, true}) {
      Matrix8 rows(gpu, N, C), expected_rows(gpu, N, C), columns(gpu, C, float8_terms(N), true),
          expected(gpu, C, float8_terms(N), true);
      Kernels::NormForward call{.x = x.gpu,
                                .weight = parameters.gpu.rows(0, 1),
                                .bias = layer ? parameters.gpu.rows(1, 2) : View{},
                                .epsilon = 1e-5,
                                .y = y.view({N, C}, DType::bf16),
                                .stats = stats.view({N, layer ? 2 : 1}, DType::f32)};
      const auto norm = [&] { layer ? ops.layer_norm_forward(call) : ops.rms_norm_forward(call); };
      norm();
      ops.quantize({.x = call.y, .rows = expected_rows.matrix(), .columns = expected.matrix()});
      call.y = {}, call.y8 = rows.matrix();
      norm();
      expect_equal(rows, expected_rows);
      ops.quantize({.x = call.x,
                    .norm = {.weight = call.weight, .bias = call.bias, .stats = call.stats, .epsilon = 1e-5},
                    .columns = columns.matrix()});
      expect_equal(columns, expected);
    }
    const View h = wide_h.view({N, F}, DType::bf16);
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
      Matrix8 h_rows(gpu, N, F), only_h(gpu, N, F), expected_h(gpu, N, F), rounded(gpu, N, 2 * F),
          expected_rounded(gpu, N, 2 * F);
      ops.gated_forward(gate_up.gpu, activation, h);
      ops.quantize({.x = h, .rows = expected_h.matrix()});
      ops.quantize({.x = gate_up.gpu, .rows = expected_rounded.matrix()});
      ops.gated_forward8(
          {.gate_up = gate_up.gpu, .activation = activation, .h = h_rows.matrix(), .rounded = rounded.matrix()});
      ops.gated_forward8({.gate_up = gate_up.gpu, .activation = activation, .h = only_h.matrix()});
      expect_equal(h_rows, expected_h);
      expect_equal(only_h, expected_h);
      expect_equal(rounded, expected_rounded);
      // With powers of two as scales, bf16 holds the rounded values.
      for (float& scale : rounded.scales) scale = std::exp2(std::round(std::log2(scale)));
      rounded.put_scales();
      const View narrow = d_gate_up.view({N, 2 * F}, DType::bf16);
      ops.dequantize8(rounded.matrix(), false, narrow);
      Matrix8 d_rows(gpu, N, 2 * F), d_columns(gpu, 2 * F, float8_terms(N)), h_columns(gpu, F, float8_terms(N), true),
          expected_rows(gpu, N, 2 * F), expected_columns(gpu, 2 * F, float8_terms(N)),
          expected_again(gpu, F, float8_terms(N), true);
      ops.gated_backward({.d_h = d_h.gpu, .gate_up = narrow, .activation = activation, .d_gate_up = narrow, .h = h});
      ops.quantize({.x = narrow, .rows = expected_rows.matrix(), .columns = expected_columns.matrix()});
      ops.quantize({.x = h, .columns = expected_again.matrix()});
      ops.gated_backward8({.d_h = d_h.gpu,
                           .gate_up = rounded.matrix(),
                           .activation = activation,
                           .d_gate_up_rows = d_rows.matrix(),
                           .d_gate_up_columns = d_columns.matrix(),
                           .h_columns = h_columns.matrix()});
      expect_equal(d_rows, expected_rows);
      expect_equal(d_columns, expected_columns);
      expect_equal(h_columns, expected_again);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
