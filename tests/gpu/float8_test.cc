// Matrices in 8 bits: a GPU and a CPU round to the same bits, and products use the rounded values.
#include "tessera/base/float8.h"

#include "gpu_testing.h"

namespace tessera::testing {
namespace {

int64_t num_blocks(int64_t terms) {
  return (terms + kFloat8Block - 1) / kFloat8Block;
}

// A matrix in 8 bits on one device, and its values in host memory.
class Matrix8 {
 public:
  Matrix8(Device& device, int64_t rows, int64_t columns)
      : device_(device),
        rows_(rows),
        columns_(columns),
        values_(device.allocate(rows * columns, Category::workspace)),
        scales_(device.allocate(num_blocks(columns) * rows * 4, Category::workspace)) {}
  Float8Matrix matrix() const {
    return {values_.view({rows_, columns_}, DType::e4m3), scales_.view({num_blocks(columns_), rows_}, DType::f32)};
  }
  void fetch() {
    codes.resize(static_cast<size_t>(rows_ * columns_));
    scales.resize(static_cast<size_t>(num_blocks(columns_) * rows_));
    device_.copy_to_host(matrix().values, codes.data());
    device_.copy_to_host(matrix().scales, scales.data());
  }
  double at(int64_t row, int64_t column) const {
    return double{e4m3_to_f32(codes[static_cast<size_t>(row * columns_ + column)]) *
                  scales[static_cast<size_t>(column / kFloat8Block * rows_ + row)]};
  }

  std::vector<uint8_t> codes;
  std::vector<float> scales;

 private:
  Device& device_;
  int64_t rows_, columns_;
  Buffer values_, scales_;
};

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
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(::testing::Message() << R << " x " << K << " " << name_of(dtype));
      const Source x(R, K, 7, dtype);
      Matrix8 cpu_rows(*rig().cpu, R, K), cpu_columns(*rig().cpu, K, float8_terms(R)), gpu_rows(*rig().gpu, R, K),
          gpu_columns(*rig().gpu, K, float8_terms(R));
      rig().cpu_kernels->quantize({.x = x.cpu, .rows = cpu_rows.matrix(), .columns = cpu_columns.matrix()});
      rig().gpu_kernels->quantize({.x = x.gpu, .rows = gpu_rows.matrix(), .columns = gpu_columns.matrix()});
      for (auto [cpu, gpu] : {std::pair{&cpu_rows, &gpu_rows}, std::pair{&cpu_columns, &gpu_columns}}) {
        cpu->fetch(), gpu->fetch();
        EXPECT_EQ(cpu->scales, gpu->scales);
        EXPECT_EQ(cpu->codes, gpu->codes);
      }
      Matrix8 only(*rig().gpu, R, K);
      rig().gpu_kernels->quantize({.x = x.gpu, .rows = only.matrix()});
      only.fetch();
      EXPECT_EQ(only.codes, gpu_rows.codes);
    }
  }
}

// A sum of `length` products of 8-bit values. Hopper's tensor cores add fp8 products with at least 13 bits behind the
// point of the largest one, for 128 terms. The sums of 128 terms are added in f32.
TEST(Float8OnGpu, ProductsUseTheRoundedValues) {
  for (const auto& [N, I, O] : {std::array<int64_t, 3>{32, 128, 256}, {160, 272, 144}, {256, 1024, 512}}) {
    SCOPED_TRACE(::testing::Message() << N << " rows, " << I << " to " << O);
    const Source x(N, I, 1), weight(O, I, 2), d_y(N, O, 3);
    Device& gpu = *rig().gpu;
    Matrix8 x_rows(gpu, N, I), x_columns(gpu, I, float8_terms(N)), w_rows(gpu, O, I), w_columns(gpu, I, O),
        d_rows(gpu, N, O), d_columns(gpu, O, float8_terms(N));
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

}  // namespace
}  // namespace tessera::testing
