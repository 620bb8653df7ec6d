// Tests matrices in 8 bits, and products of them. The values of a matrix are compared with a plain implementation of
// base/float8.h, and products with products of these values in double precision.
#include "tessera/base/float8.h"

#include <algorithm>

#include "ops_testing.h"

namespace tessera::testing {
namespace {

// A matrix in 8 bits, with its memory. It starts with codes of NaN, so that a value that is not written is visible.
struct Matrix8 {
  Matrix8(int64_t num_rows, int64_t num_columns, bool has_squares = false)
      : rows(num_rows),
        columns(num_columns),
        squares(has_squares),
        codes(static_cast<size_t>(rows * columns), 0x7f),
        scales(static_cast<size_t>(float8_scales(rows, columns, squares).num_elems()), 1) {}
  Float8Matrix matrix() {
    return {{reinterpret_cast<std::byte*>(codes.data()), DType::e4m3, {rows, columns}},
            view_of(scales.data(), float8_scales(rows, columns, squares)),
            squares};
  }
  float scale_at(int64_t row, int64_t column) const {
    const int64_t pitch = float8_scales(rows, columns, squares)[1];
    return scales[static_cast<size_t>(squares ? row / kFloat8Block * pitch + column / kFloat8Block
                                              : column / kFloat8Block * pitch + row)];
  }
  double at(int64_t row, int64_t column) const {
    return double{e4m3_to_f32(codes[static_cast<size_t>(row * columns + column)]) * scale_at(row, column)};
  }

  int64_t rows, columns;
  bool squares;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};

// Random numbers of very different sizes, and some blocks of zeros.
std::vector<float> wild_values(int64_t rows, int64_t columns, uint64_t seed) {
  RandomStream random(seed, 3);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t block = i / columns / 50 + i % columns / 50;
    const double size = block % 5 == 4 ? 0 : std::exp2(static_cast<double>(block % 7) * 6 - 20);
    const double spread = std::exp2(-12 * random.next_uniform());
    values[static_cast<size_t>(i)] = static_cast<float>(size * spread * (2 * random.next_uniform() - 1));
  }
  return values;
}

class Random8 : public ::testing::TestWithParam<uint64_t> {
 protected:
  Random8() : random_(GetParam(), 1) {}
  int64_t draw(int64_t most) { return 1 + static_cast<int64_t>(random_.next_uniform() * static_cast<double>(most)); }
  int64_t draw16(int64_t most) { return 16 * draw(most / 16); }

  RandomStream random_;
};

TEST_P(Random8, QuantizesRowsAndColumns) {
  const int64_t R = draw(300), K = draw(300);
  const bool squares = GetParam() % 2 == 1;
  SCOPED_TRACE(std::to_string(R) + " x " + std::to_string(K));
  const std::vector<float> x = wild_values(R, K, GetParam());
  std::vector<uint16_t> halves(x.size());
  std::vector<float> rounded(x.size());
  convert(x.data(), DType::f32, halves.data(), DType::bf16, x.size());
  convert(halves.data(), DType::bf16, rounded.data(), DType::f32, x.size());
  for (const bool narrow : {false, true}) {
    const std::vector<float>& values = narrow ? rounded : x;
    const View view{
        reinterpret_cast<std::byte*>(narrow ? static_cast<void*>(halves.data()) : const_cast<float*>(x.data())),
        narrow ? DType::bf16 : DType::f32,
        {R, K}};
    Matrix8 rows(R, K, squares), columns(K, float8_terms(R), squares), only(K, float8_terms(R), squares);
    Rig one(1), three(3);
    three->quantize({.x = view, .rows = rows.matrix(), .columns = columns.matrix()});
    one->quantize({.x = view, .columns = only.matrix()});
    EXPECT_EQ(only.codes, columns.codes);
    EXPECT_EQ(only.scales, columns.scales);
    // The largest magnitude of a block determines its scale. Each value is rounded to the nearest one.
    const auto check = [&](const Matrix8& matrix, int64_t used, bool powers, const auto& value_at) {
      for (int64_t row = 0; row < matrix.rows; ++row) {
        for (int64_t first = 0; first < used; first += kFloat8Block) {
          const int64_t end = std::min(used, first + kFloat8Block);
          const int64_t first_row = squares ? row / kFloat8Block * kFloat8Block : row,
                        end_row = squares ? std::min(matrix.rows, first_row + kFloat8Block) : row + 1;
          float largest = 0;
          for (int64_t r = first_row; r < end_row; ++r) {
            for (int64_t k = first; k < end; ++k) largest = std::max(largest, std::abs(value_at(r, k)));
          }
          const float scale = largest == 0 ? 1
                              : powers     ? std::exp2(std::ceil(std::log2(largest / 448)))
                                           : largest / 448;
          for (int64_t k = first; k < end; ++k) {
            const double value = value_at(row, k), distance = std::abs(matrix.at(row, k) - value);
            EXPECT_LE(distance, (1 + 1e-6) * std::max(std::abs(value) * 0x1p-4, scale * 0x1p-10)) << row << " " << k;
          }
          EXPECT_EQ(matrix.scale_at(row, first), scale);
        }
        for (int64_t k = used; k < matrix.columns; ++k) EXPECT_EQ(matrix.at(row, k), 0);
      }
    };
    const auto at = [&](int64_t r, int64_t k) { return values[static_cast<size_t>(r * K + k)]; };
    check(rows, K, false, at);
    check(columns, R, true, [&](int64_t k, int64_t r) { return at(r, k); });
    // What dequantize8() returns are these values.
    std::vector<float> again(x.size()), transposed(x.size());
    one->dequantize8(rows.matrix(), false, view_of(again.data(), {R, K}));
    three->dequantize8(columns.matrix(), true, view_of(transposed.data(), {R, K}));
    for (int64_t r = 0; r < R; ++r) {
      for (int64_t k = 0; k < K; ++k) {
        EXPECT_EQ(double{again[static_cast<size_t>(r * K + k)]}, rows.at(r, k));
        EXPECT_EQ(double{transposed[static_cast<size_t>(r * K + k)]}, columns.at(k, r));
      }
    }
  }
}

// Each of the three products of a layer equals the product of the two matrices' values in double precision. Results are
// f32 or bf16. halves_test.cc explains the tolerance.
TEST_P(Random8, ProductsUseTheValues) {
  const int64_t N = draw(200), I = draw16(200), O = draw16(200);
  SCOPED_TRACE(std::to_string(N) + " rows, " + std::to_string(I) + " to " + std::to_string(O));
  Rig rig;
  Matrix8 x(N, I), x_columns(I, float8_terms(N), true), weight(O, I, true), weight_columns(I, O, true), d_y(N, O),
      d_y_columns(O, float8_terms(N));
  const auto quantize = [&](int64_t rows, int64_t columns, uint64_t seed, Matrix8& as_is, Matrix8& transposed) {
    std::vector<float> values = random_values<float>(rows * columns, seed);
    rig->quantize({.x = view(values, {rows, columns}), .rows = as_is.matrix(), .columns = transposed.matrix()});
  };
  quantize(N, I, 1, x, x_columns);
  quantize(O, I, 2, weight, weight_columns);
  quantize(N, O, 3, d_y, d_y_columns);
  std::vector<float> bias = random_values<float>(O, 4), residual = random_values<float>(N * O, 5);
  // `value`: of the exact result.
  const auto expect_product = [&](DType dtype, const std::vector<std::byte>& bits, int64_t columns, double num_terms,
                                  const auto& value) {
    std::vector<double> actual(bits.size() / size_of(dtype));
    convert(bits.data(), dtype, actual.data(), DType::f64, actual.size());
    const double roundoff = dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
    for (size_t i = 0; i < actual.size(); ++i) {
      const double exact = value(static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns);
      ASSERT_LE(std::abs(actual[i] - exact), roundoff * std::abs(exact) + 0x1p-24 * num_terms) << i << " " << exact;
    }
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto bytes = [&](int64_t count) {
      return std::vector<std::byte>(static_cast<size_t>(count) * size_of(dtype));
    };
    const auto narrow = [&](const std::vector<float>& values) {
      std::vector<std::byte> bits = bytes(std::ssize(values));
      convert(values.data(), DType::f32, bits.data(), dtype, values.size());
      return bits;
    };
    std::vector<std::byte> y = bytes(N * O), d_x = bytes(N * I), d_weight = bytes(O * I), b = narrow(bias),
                           r = narrow(residual);
    rig->linear_forward({.x = {},
                         .weight = {},
                         .x8 = x.matrix(),
                         .weight8 = weight.matrix(),
                         .bias = {b.data(), dtype, {O}},
                         .epilogue = {Activation::none, {}, {r.data(), dtype, {N, O}}},
                         .y = {y.data(), dtype, {N, O}}});
    std::vector<double> wide_b(bias.size()), wide_r(residual.size());
    convert(b.data(), dtype, wide_b.data(), DType::f64, wide_b.size());
    convert(r.data(), dtype, wide_r.data(), DType::f64, wide_r.size());
    expect_product(dtype, y, O, 2.0 * static_cast<double>(I) + 8, [&](int64_t n, int64_t o) {
      double sum = wide_b[static_cast<size_t>(o)] + wide_r[static_cast<size_t>(n * O + o)];
      for (int64_t i = 0; i < I; ++i) sum += x.at(n, i) * weight.at(o, i);
      return sum;
    });
    rig->linear_backward_input({.d_y = {},
                                .weight = {},
                                .d_y8 = d_y.matrix(),
                                .weight8 = weight_columns.matrix(),
                                .d_x = {d_x.data(), dtype, {N, I}}});
    expect_product(dtype, d_x, I, 2.0 * static_cast<double>(O) + 8, [&](int64_t n, int64_t i) {
      double sum = 0;
      for (int64_t o = 0; o < O; ++o) sum += d_y.at(n, o) * weight_columns.at(i, o);
      return sum;
    });
    for (const bool fresh : {true, false}) {
      std::vector<double> before(d_weight.size() / size_of(dtype));
      if (!fresh) convert(d_weight.data(), dtype, before.data(), DType::f64, before.size());
      rig->linear_backward_weight8(d_y_columns.matrix(), x_columns.matrix(), fresh, {d_weight.data(), dtype, {O, I}});
      expect_product(dtype, d_weight, I, 4.0 * static_cast<double>(N) + 8, [&](int64_t o, int64_t i) {
        double sum = before[static_cast<size_t>(o * I + i)];
        for (int64_t n = 0; n < N; ++n) sum += d_y_columns.at(o, n) * x_columns.at(i, n);
        return sum;
      });
    }
  }
}

// Norms and gated layers that round to 8 bits do what their calls in bf16 and quantize() do.
TEST_P(Random8, FusedCallsEqualTheirParts) {
  const int64_t N = draw(200), C = draw16(300), F = kFloat8Block * draw(2);
  SCOPED_TRACE(std::to_string(N) + " rows, " + std::to_string(C) + " channels, " + std::to_string(F) + " inner");
  Rig rig(2);
  const auto halves = [&](int64_t count, uint64_t seed) {
    const std::vector<float> values = random_values<float>(count, seed);
    std::vector<uint16_t> bits(values.size());
    convert(values.data(), DType::f32, bits.data(), DType::bf16, bits.size());
    return bits;
  };
  const auto view16 = [](std::vector<uint16_t>& bits, Shape shape) {
    return View{reinterpret_cast<std::byte*>(bits.data()), DType::bf16, shape};
  };
  const auto expect_equal = [](const Matrix8& a, const Matrix8& b) {
    EXPECT_EQ(a.codes, b.codes);
    EXPECT_EQ(a.scales, b.scales);
  };
  std::vector<uint16_t> x = halves(N * C, 1), weight = halves(C, 2), bias = halves(C, 3), y(x.size());
  for (const bool layer : {false, true}) {
    Matrix8 rows(N, C), expected_rows(N, C), columns(C, float8_terms(N), true), expected(C, float8_terms(N), true);
    std::vector<float> stats(static_cast<size_t>(N) * 2);
    Kernels::NormForward call{.x = view16(x, {N, C}),
                              .weight = view16(weight, {C}),
                              .bias = layer ? view16(bias, {C}) : View{},
                              .epsilon = 1e-5,
                              .y = view16(y, {N, C}),
                              .stats = view_of(stats.data(), {N, layer ? 2 : 1})};
    const auto norm = [&] { layer ? rig->layer_norm_forward(call) : rig->rms_norm_forward(call); };
    norm();
    rig->quantize({.x = call.y, .rows = expected_rows.matrix(), .columns = expected.matrix()});
    call.y = {}, call.y8 = rows.matrix();
    norm();
    expect_equal(rows, expected_rows);
    rig->quantize({.x = call.x,
                   .norm = {.weight = call.weight, .bias = call.bias, .stats = call.stats, .epsilon = 1e-5},
                   .columns = columns.matrix()});
    expect_equal(columns, expected);
  }
  std::vector<uint16_t> gate_up = halves(N * 2 * F, 4), d_h = halves(N * F, 5), h(d_h.size()),
                        d_gate_up(gate_up.size());
  Matrix8 h_rows(N, F), expected_h(N, F), rounded(N, 2 * F), expected_rounded(N, 2 * F);
  rig->gated_forward(view16(gate_up, {N, 2 * F}), Activation::silu, view16(h, {N, F}));
  rig->quantize({.x = view16(h, {N, F}), .rows = expected_h.matrix()});
  rig->quantize({.x = view16(gate_up, {N, 2 * F}), .rows = expected_rounded.matrix()});
  rig->gated_forward8({.gate_up = view16(gate_up, {N, 2 * F}),
                       .activation = Activation::silu,
                       .h = h_rows.matrix(),
                       .rounded = rounded.matrix()});
  expect_equal(h_rows, expected_h);
  expect_equal(rounded, expected_rounded);
  // With powers of two as scales, bf16 holds the rounded values.
  for (float& scale : rounded.scales) scale = std::exp2(std::round(std::log2(scale)));
  std::vector<float> wide(gate_up.size());
  rig->dequantize8(rounded.matrix(), false, view_of(wide.data(), {N, 2 * F}));
  convert(wide.data(), DType::f32, gate_up.data(), DType::bf16, wide.size());
  Matrix8 d_rows(N, 2 * F), d_columns(2 * F, float8_terms(N)), h_columns(F, float8_terms(N), true),
      expected_rows(N, 2 * F), expected_columns(2 * F, float8_terms(N)), expected_again(F, float8_terms(N), true);
  rig->gated_backward({.d_h = view16(d_h, {N, F}),
                       .gate_up = view16(gate_up, {N, 2 * F}),
                       .activation = Activation::silu,
                       .d_gate_up = view16(d_gate_up, {N, 2 * F}),
                       .h = view16(h, {N, F})});
  rig->quantize(
      {.x = view16(d_gate_up, {N, 2 * F}), .rows = expected_rows.matrix(), .columns = expected_columns.matrix()});
  rig->quantize({.x = view16(h, {N, F}), .columns = expected_again.matrix()});
  rig->gated_backward8({.d_h = view16(d_h, {N, F}),
                        .gate_up = rounded.matrix(),
                        .activation = Activation::silu,
                        .d_gate_up_rows = d_rows.matrix(),
                        .d_gate_up_columns = d_columns.matrix(),
                        .h_columns = h_columns.matrix()});
  expect_equal(d_rows, expected_rows);
  expect_equal(d_columns, expected_columns);
  expect_equal(h_columns, expected_again);
}

// The parts of an array with several matrices, on different ranks, get the codes and scales that quantize() gives to
// each complete matrix. transpose8() of these equals `columns` of quantize().
TEST_P(Random8, PartsHaveTheBitsOfTheWhole) {
  std::vector<Float8Place> places;
  int64_t end = 0, num_scales = 0;
  for (int64_t i = draw(3); i > 0; --i) {
    end += 16 * (draw(3) - 1);
    const Float8Place place{end, draw16(300), draw16(300), num_scales};
    places.push_back(place);
    end += place.rows * place.columns;
    num_scales += float8_scales(place.rows, place.columns, true).num_elems();
  }
  end += 16 * (draw(3) - 1);
  const int64_t R = draw(5);
  std::vector<float> values = wild_values(1, end, GetParam());
  std::vector<uint16_t> bits(values.size());
  convert(values.data(), DType::f32, bits.data(), DType::bf16, bits.size());
  const View all{reinterpret_cast<std::byte*>(bits.data()), DType::bf16, {end}};
  std::vector<uint8_t> codes(values.size(), 0x7f);
  const View all_codes{reinterpret_cast<std::byte*>(codes.data()), DType::e4m3, {end}};
  const int64_t pitch = num_scales + 4 * draw(3);
  std::vector<float> largest(static_cast<size_t>(R * pitch), NAN), scales(static_cast<size_t>(num_scales));
  Rig rig(2);
  const auto stream = rig.device->make_stream();
  const auto shard = [&](int64_t rank) {
    const int64_t size = (end / 16 + R - 1) / R * 16, first = std::min(end, rank * size);
    return Kernels::Float8Shard{
        .values = all.rows(first, std::min(end, first + size)), .first = first, .places = places};
  };
  for (int64_t r = 0; r < R; ++r) {
    rig->largest_of_squares(*stream, shard(r), view_of(largest.data() + r * pitch, {num_scales}));
  }
  for (int64_t r = 0; r < R; ++r) {
    const Kernels::Float8Shard own = shard(r);
    std::ranges::fill(scales, 0.0f);
    rig->quantize_shard(*stream, own, view_of(largest.data(), {R, pitch}), view_of(scales.data(), {num_scales}),
                        all_codes.rows(own.first, own.first + own.values.num_elems()));
    stream->record().synchronize();
  }
  std::vector<uint8_t> expected_codes(codes.size());  // zeros outside of the matrices
  for (const Float8Place& place : places) {
    Matrix8 rows(place.rows, place.columns, true), columns(place.columns, place.rows, true),
        transposed(place.columns, place.rows, true);
    const View x{all.rows(place.offset, end).data, DType::bf16, {place.rows, place.columns}};
    rig->quantize(
        {.x = x, .rows = rows.matrix(), .columns = columns.matrix(), .kind_of_columns = Float8ScaleKind::quotient});
    std::ranges::copy(rows.codes, expected_codes.begin() + place.offset);
    rig->transpose8(rows.matrix(), transposed.matrix());
    EXPECT_EQ(transposed.codes, columns.codes);
    EXPECT_EQ(transposed.scales, columns.scales);
    const std::vector<float> found(scales.begin() + place.first_scale,
                                   scales.begin() + place.first_scale + std::ssize(rows.scales));
    EXPECT_EQ(found, rows.scales);
  }
  EXPECT_EQ(codes, expected_codes);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Random8, ::testing::Range<uint64_t>(0, 12));

TEST(Float8Matrix, AnInfinityOrNaNIsNotHidden) {
  Rig rig;
  for (const float broken : {std::numeric_limits<float>::infinity(), NAN}) {
    std::vector<float> values = random_values<float>(4 * 300, 1);
    values[2 * 300 + 140] = broken;
    Matrix8 rows(4, 300), columns(300, 16);
    rig->quantize({.x = view(values, {4, 300}), .rows = rows.matrix(), .columns = columns.matrix()});
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t k = 0; k < 300; ++k) {
        EXPECT_EQ(std::isnan(rows.at(row, k)), row == 2 && k >= 128 && k < 256) << row << " " << k;
        EXPECT_EQ(std::isnan(columns.at(k, row)), k == 140) << row << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
