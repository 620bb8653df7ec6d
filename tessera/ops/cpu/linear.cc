// Linear layers, and the operators fused into them (LinearEpilogue).
#include "tessera/base/math.h"
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/epilogue.h"
#include "tessera/ops/cpu/product.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kGrainRows = 4;

// If the split into tiles changes, the last bits of CBLAS results may change (product.h). For CBLAS, the split
// therefore always assumes this number of threads. The results then do not depend on the real number of threads.
constexpr int64_t kAssumedThreads = 16;

// How a result [rows, columns] is split into tiles for the threads.
class Grid {
 public:
  struct Tile {
    int64_t row_begin, row_end, begin, end;
  };

  // Tries the coarsest grid and finer grids. Selects the grid with the lowest cost for the busiest thread. The cost of
  // a tile is its number of multiply-adds for one element of the inner dimension k, plus the cost of packing this
  // element of its rows (kPackRow for each row) and columns (kPackColumn for each). The unit is the cost of one
  // multiply-add.
  Grid(int64_t rows, int64_t columns, int64_t threads) : rows_(rows), columns_(columns) {
    const int64_t coarse_rows = pieces(rows, kTileRows), coarse_columns = pieces(columns, kTileColumns);
    int64_t least = 0;
    for (int64_t i = coarse_rows; i < coarse_rows + threads; ++i) {
      for (int64_t j = coarse_columns; j < coarse_columns + threads; ++j) {
        const int64_t tile_rows = pieces(pieces(rows, kRowUnit), i) * kRowUnit;
        const int64_t tile_columns = pieces(pieces(columns, kColumnUnit), j) * kColumnUnit;
        const int64_t cost =
            pieces(i * j, threads) * (tile_rows * tile_columns + kPackRow * tile_rows + kPackColumn * tile_columns);
        if (least && cost >= least) continue;
        least = cost;
        row_tiles_ = i;
        column_tiles_ = j;
      }
    }
  }
  int64_t count() const { return rows_ > 0 && columns_ > 0 ? row_tiles_ * column_tiles_ : 0; }
  // Counts the tiles down each column of the grid. Most consecutive tiles therefore use the same part of the right
  // factor.
  Tile operator[](int64_t index) const {
    const int64_t i = index % row_tiles_, j = index / row_tiles_;
    return {border(rows_, kRowUnit, i, row_tiles_), border(rows_, kRowUnit, i + 1, row_tiles_),
            border(columns_, kColumnUnit, j, column_tiles_), border(columns_, kColumnUnit, j + 1, column_tiles_)};
  }

 private:
  static constexpr int64_t kPackRow = 5, kPackColumn = 11;
  static int64_t pieces(int64_t count, int64_t size) { return ceil_divide(count, size); }
  static int64_t border(int64_t count, int64_t unit, int64_t index, int64_t tiles) {
    return std::min(count, pieces(count, unit) * index / tiles * unit);
  }

  int64_t rows_, columns_, row_tiles_ = 1, column_tiles_ = 1;
};

// Calls body(tile, row, column, scratch) for every tile of a product. Each tile runs on one thread. The arguments
// are the factors of the tile, the place of its first element in the full product, and the scratch of the calling
// thread.
template <typename T, typename Body>
void for_tiles(Team& team, const Factors<T>& whole, const Body& body) {
  static_assert(kProductScratchElems <= Team::scratch_elems<T>());
  const Grid grid(whole.m, whole.n, kOwnProducts<T> ? team.num_threads() : kAssumedThreads);
  team.for_each(grid.count(), [&](int64_t thread, int64_t index) {
    const auto [row, row_end, column, column_end] = grid[index];
    if (row == row_end || column == column_end) return;
    Factors<T> tile = whole;
    tile.m = row_end - row;
    tile.n = column_end - column;
    tile.a += row * (whole.transpose_a == Transpose::yes ? 1 : whole.lda);
    tile.b += column * (whole.transpose_b == Transpose::yes ? whole.ldb : 1);
    body(tile, row, column, team.scratch<T>(thread));
  });
}

// Computes the product of `factors` and applies `finish`, which stores the result.
template <typename T>
void finished_product(Team& team, const Factors<T>& factors, const Finish<T>& finish) {
  for_tiles(team, factors, [&](const Factors<T>& tile, int64_t row, int64_t column, T* scratch) {
    if (finish.is_store()) {
      multiply(tile, Result::set, finish.result() + row * factors.n + column, factors.n, scratch);
      return;
    }
    auto then = [&](int64_t block_row, int64_t rows, int64_t block_column, int64_t columns, T* c, int64_t ldc) {
      const int64_t begin = column + block_column;
      for (int64_t r = 0; r < rows; ++r) finish.apply(row + block_row + r, begin, begin + columns, c + r * ldc);
    };
    multiply_then(tile, Continuation<T>{std::ref(then), finish.touched(row, column), factors.n}, scratch);
  });
}

// sums[c] += the sum of column c of d_y [rows, columns], for c in [begin, end). The rows are added in order.
template <typename T>
void add_column_sums(const T* d_y, int64_t rows, int64_t columns, int64_t begin, int64_t end, T* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = d_y + row * columns;
#pragma omp simd
    for (int64_t c = begin; c < end; ++c) sums[c] += source[c];
  }
}

}  // namespace

CpuKernels::CpuKernels(Device& device) : team_(device) {
  use_one_blas_thread();
  keep_space_for_blas(team_.num_threads());
}

void CpuKernels::linear_forward(const LinearForward& call) {
  TESSERA_ASSERT(!call.x8 && !call.weight8);
  count_linear(call.x, call.weight);
  const int64_t rows = call.x.shape[0], in = call.x.shape[1];
  TESSERA_ASSERT(call.weight.shape == (Shape{call.y.shape[1], in}) && call.y.shape[0] == rows);
  TESSERA_ASSERT(!call.bias || call.bias.num_elems() == call.y.shape[1]);
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    finished_product(team_,
                     Factors<T>{Transpose::no, Transpose::yes, rows, call.y.shape[1], in, call.x.as<T>(), in,
                                call.weight.as<T>(), in},
                     Finish<T>::forward(call.bias, call.added, call.epilogue, call.preactivation, call.y));
  });
}

void CpuKernels::linear_backward_input(const LinearBackwardInput& call) {
  TESSERA_ASSERT(!call.d_y8 && !call.weight8);
  count_linear(call.d_y, call.weight);
  const int64_t rows = call.d_y.shape[0], out = call.d_y.shape[1];
  TESSERA_ASSERT(call.weight.shape == (Shape{out, call.d_x.shape[1]}) && call.d_x.shape[0] == rows);
  with_float_type(call.d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t in = call.d_x.shape[1];
    finished_product(
        team_, Factors<T>{Transpose::no, Transpose::no, rows, in, out, call.d_y.as<T>(), out, call.weight.as<T>(), in},
        Finish<T>::backward(call.added, call.epilogue, call.preactivation, call.d_x, call.x));
  });
}

void CpuKernels::linear_backward_weight(View d_y, View x, bool fresh, View d_weight) {
  count_linear(d_y, d_weight);
  const int64_t rows = d_y.shape[0], out = d_y.shape[1], in = x.shape[1];
  TESSERA_ASSERT(x.shape[0] == rows && d_weight.shape == (Shape{out, in}));
  TESSERA_ASSERT(rows > 0 || !fresh);
  if (rows == 0) return;
  with_float_type(d_y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Factors<T> factors{Transpose::yes, Transpose::no, out, in, rows, d_y.as<T>(), out, x.as<T>(), in};
    for_tiles(team_, factors, [&](const Factors<T>& tile, int64_t row, int64_t column, T* scratch) {
      multiply(tile, fresh ? Result::set : Result::add, d_weight.as<T>() + row * in + column, in, scratch);
    });
  });
}

// EmulatedKernels calls linear_backward_weight() instead.
void CpuKernels::linear_backward_weight8(const Float8Matrix&, const Float8Matrix&, bool, View) {
  TESSERA_ASSERT(!"only emulated kernels accept 8-bit matrices");
}

void CpuKernels::linear_backward_bias(std::span<const BiasGradient> gradients) {
  for (const auto& [d_y, d_bias] : gradients) {
    const int64_t rows = d_y.shape[0], out = d_y.shape[1];
    TESSERA_ASSERT(d_bias.num_elems() == out);
    with_float_type(d_y.dtype, [&, d_y = d_y, d_bias = d_bias](auto zero) {  // clang 14 cannot capture bindings
      using T = decltype(zero);
      team_.for_ranges(out, kColumnUnit, [&](int64_t, int64_t begin, int64_t end) {
        add_column_sums(d_y.as<T>(), rows, out, begin, end, d_bias.as<T>());
      });
    });
  }
}

void CpuKernels::dropout_backward(View d_y, const Dropout& dropout, View d_x) {
  TESSERA_ASSERT(d_y.shape == d_x.shape);
  LinearEpilogue epilogue;
  epilogue.dropout = dropout;
  const int64_t columns = d_x.shape[1];
  with_float_type(d_x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto finish = Finish<T>::backward({}, epilogue, {}, d_x, {});
    team_.for_ranges(d_x.shape[0], kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
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
