#include "tessera/ops/cpu/linear.h"

#include "tessera/ops/cpu/blas.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/epilogue.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 4;

// A tile of a product waits in half a megabyte of L2 for what follows it.
constexpr int64_t kTileRows = 256, kTileColumns = 512;

// result [rows, columns] = finish(a · op(b)) in tiles, a [rows, k]; op(b) [k, columns].
template <typename T>
void product(Team& team, const T* a, int64_t rows, int64_t k, const T* b, Transpose transpose_b,
             const Finish<T>& finish) {
  const int64_t columns = finish.columns(), ldb = transpose_b == Transpose::yes ? k : columns;
  const int64_t row_tiles = (rows + kTileRows - 1) / kTileRows, column_tiles = (columns + kTileColumns - 1) / kTileColumns;
  team.for_each(row_tiles * column_tiles, [&](int64_t slot, int64_t tile) {
    const int64_t i = tile / column_tiles, j = tile % column_tiles;
    const int64_t row_begin = rows * i / row_tiles, row_end = rows * (i + 1) / row_tiles;
    const int64_t begin = j * kTileColumns, end = std::min(columns, begin + kTileColumns);
    const T* b_tile = transpose_b == Transpose::yes ? b + begin * k : b + begin;
    T* out = finish.is_store() ? finish.result() + row_begin * columns + begin : team.scratch<T>(slot);
    const int64_t ld = finish.is_store() ? columns : end - begin;
    gemm(Transpose::no, transpose_b, row_end - row_begin, end - begin, k, T(1), a + row_begin * k, k, b_tile, ldb, T(0),
         out, ld);
    if (finish.is_store()) return;
    for (int64_t row = row_begin; row < row_end; ++row) finish.apply(row, begin, end, out + (row - row_begin) * ld);
  });
}

// sums += column sums of d_y [rows, columns] over columns [begin, end), rows in order.
template <typename T>
void add_column_sums(const T* d_y, int64_t rows, int64_t columns, int64_t begin, int64_t end, T* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = d_y + row * columns;
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) sums[c] += source[c];
  }
}

}  // namespace

void linear_forward(Team& team, View x, View weight, View bias, const LinearEpilogue& epilogue, View preactivation,
                    View y) {
  const int64_t rows = x.shape[0], in = x.shape[1];
  TESSERA_ASSERT(weight.shape == (Shape{y.shape[1], in}) && y.shape[0] == rows);
  TESSERA_ASSERT(!bias || bias.num_elems() == y.shape[1]);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    product(team, x.as<T>(), rows, in, weight.as<T>(), Transpose::yes,
            Finish<T>::forward(bias, epilogue, preactivation, y));
  });
}

void linear_backward_input(Team& team, View d_y, View weight, const LinearEpilogue& epilogue, View preactivation,
                           View d_x) {
  const int64_t rows = d_y.shape[0], out = d_y.shape[1];
  TESSERA_ASSERT(weight.shape == (Shape{out, d_x.shape[1]}) && d_x.shape[0] == rows);
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    product(team, d_y.as<T>(), rows, out, weight.as<T>(), Transpose::no,
            Finish<T>::backward(epilogue, preactivation, d_x));
  });
}

void linear_backward_weight(Team& team, View d_y, View x, View d_weight, View d_bias) {
  const int64_t rows = d_y.shape[0], out = d_y.shape[1], in = x.shape[1];
  TESSERA_ASSERT(x.shape[0] == rows && d_weight.shape == (Shape{out, in}));
  TESSERA_ASSERT(!d_bias || d_bias.num_elems() == out);
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t out_tiles = (out + kTileColumns - 1) / kTileColumns, in_tiles = (in + kTileColumns - 1) / kTileColumns;
    team.for_each(out_tiles * in_tiles, [&](int64_t, int64_t tile) {
      const int64_t i = tile / in_tiles, j = tile % in_tiles;
      const int64_t begin = i * kTileColumns, end = std::min(out, begin + kTileColumns);
      const int64_t in_begin = j * kTileColumns, in_end = std::min(in, in_begin + kTileColumns);
      gemm(Transpose::yes, Transpose::no, end - begin, in_end - in_begin, rows, T(1), d_y.as<T>() + begin, out,
           x.as<T>() + in_begin, in, T(1), d_weight.as<T>() + begin * in + in_begin, in);
      if (d_bias && j == 0) add_column_sums(d_y.as<T>(), rows, out, begin, end, d_bias.as<T>());
    });
  });
}

void activation_forward(Team& team, View preactivation, const LinearEpilogue& epilogue, View y) {
  TESSERA_ASSERT(preactivation.shape == y.shape);
  LinearEpilogue without_residual = epilogue;
  without_residual.residual = {};
  const int64_t columns = y.shape[1];
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto finish = Finish<T>::forward({}, without_residual, {}, y);
    team.for_ranges(y.shape[0], kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* source = preactivation.as<T>() + row * columns;
        T* target = y.as<T>() + row * columns;
        std::copy(source, source + columns, target);
        finish.apply(row, 0, columns, target);
      }
    });
  });
}

void dropout_backward(Team& team, View d_y, const Dropout& dropout, View d_x) {
  TESSERA_ASSERT(d_y.shape == d_x.shape);
  LinearEpilogue epilogue;
  epilogue.dropout = dropout;
  const int64_t columns = d_x.shape[1];
  with_float_type(d_x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto finish = Finish<T>::backward(epilogue, {}, d_x);
    team.for_ranges(d_x.shape[0], kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* source = d_y.as<T>() + row * columns;
        T* target = d_x.as<T>() + row * columns;
        if (source != target) std::copy(source, source + columns, target);
        finish.apply(row, 0, columns, target);
      }
    });
  });
}

}  // namespace tessera::cpu
