// A block of b, up to 512 deep and 256 wide, is copied into strips of 32 columns that fit in L2; a panel of 14 rows of a
// into L1. A micro-kernel then holds a block of 14 × 32 sums in 28 of the 32 registers: each step of k takes two vectors of
// b and 14 broadcasts of a for 28 multiply-adds, so that neither loads nor cache bound it.
#include "tessera/ops/cpu/packed_product.h"

#if defined(__AVX512F__)

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tessera::cpu {

namespace {

constexpr int64_t kRows = 14, kStrip = 32, kLanes = 16;
constexpr int64_t kDepth = 512, kColumns = 256;
constexpr int64_t kPanelStride = kDepth + 32;  // not a multiple of 4 KiB, or the panel's rows would share cache sets
static_assert(kRows * kPanelStride + kDepth * kColumns == kProductScratchElems);

using Vector = float __attribute__((vector_size(64), may_alias));
using UnalignedVector = float __attribute__((vector_size(64), aligned(4), may_alias));

Vector load(const float* from) { return *reinterpret_cast<const UnalignedVector*>(from); }
void store(float* to, Vector value) { *reinterpret_cast<UnalignedVector*>(to) = value; }

// How a panel of a lies in scratch: rows of kPanelStride, or, when a is transposed, k rows of kRows.
enum class Panel { by_row, by_depth };

// c [Rows, 32] = or += panel [Rows, depth] · strip [depth, 32].
template <int Rows, Panel kPanel>
void multiply_block(int64_t depth, const float* panel, const float* strip, Result result, float* c, int64_t ldc) {
  // c comes from L2 or beyond; it has all the multiplications to arrive.
#pragma GCC unroll 14
  for (int64_t r = 0; r < Rows; ++r) {
    __builtin_prefetch(c + r * ldc, 1);
    __builtin_prefetch(c + r * ldc + kLanes, 1);
  }
  Vector sums[Rows][2] = {};
#pragma GCC unroll 4
  for (int64_t p = 0; p < depth; ++p) {
    const Vector b0 = load(strip + p * kStrip), b1 = load(strip + p * kStrip + kLanes);
#pragma GCC unroll 14
    for (int64_t r = 0; r < Rows; ++r) {
      const float a = kPanel == Panel::by_row ? panel[r * kPanelStride + p] : panel[p * kRows + r];
      sums[r][0] += a * b0;
      sums[r][1] += a * b1;
    }
  }
#pragma GCC unroll 14
  for (int64_t r = 0; r < Rows; ++r) {
    float* row = c + r * ldc;
    store(row, result == Result::add ? load(row) + sums[r][0] : sums[r][0]);
    store(row + kLanes, result == Result::add ? load(row + kLanes) + sums[r][1] : sums[r][1]);
  }
}

using MultiplyBlock = void (*)(int64_t, const float*, const float*, Result, float*, int64_t);

// The micro-kernels for 1 … 14 rows.
template <Panel kPanel, size_t... I>
constexpr std::array<MultiplyBlock, sizeof...(I)> blocks_of(std::index_sequence<I...>) {
  return {multiply_block<static_cast<int>(I) + 1, kPanel>...};
}
template <Panel kPanel>
constexpr auto kBlocks = blocks_of<kPanel>(std::make_index_sequence<kRows>());

// Exchanges the off-diagonal quarters of every 2·Width square: one of the four steps of transposing 16 vectors.
template <int Width>
void exchange(Vector (&v)[kLanes]) {
  using Indices = int __attribute__((vector_size(64)));
  Indices low{}, high{};
  for (int i = 0; i < kLanes; ++i) {
    low[i] = i & Width ? 16 + i - Width : i;
    high[i] = i & Width ? 16 + i : i + Width;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    if (r & Width) continue;
    const Vector first = v[r], second = v[r + Width];
    v[r] = __builtin_shuffle(first, second, low);
    v[r + Width] = __builtin_shuffle(first, second, high);
  }
}

// to [16, row stride 32] = from [16, row stride ld] transposed.
void transpose_square(const float* from, int64_t ld, float* to) {
  Vector v[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) v[r] = load(from + r * ld);
  exchange<8>(v);
  exchange<4>(v);
  exchange<2>(v);
  exchange<1>(v);
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) store(to + r * kStrip, v[r]);
}

// One strip of b [depth, columns ≤ 32], filled up with zeros. b is stored [columns, depth] when transposed.
void pack_strip(Transpose transpose, const float* b, int64_t ldb, int64_t depth, int64_t columns, float* strip) {
  if (transpose == Transpose::no && columns == kStrip) {
    for (int64_t p = 0; p < depth; ++p) {
      store(strip + p * kStrip, load(b + p * ldb));
      store(strip + p * kStrip + kLanes, load(b + p * ldb + kLanes));
    }
    return;
  }
  if (transpose == Transpose::no) {
    for (int64_t p = 0; p < depth; ++p) {
      float* row = strip + p * kStrip;
      std::fill(std::copy_n(b + p * ldb, columns, row), row + kStrip, 0.0f);
    }
    return;
  }
  const int64_t whole_depth = depth / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (int64_t j = 0; j < whole_columns; j += kLanes) {
    for (int64_t p = 0; p < whole_depth; p += kLanes) {
      transpose_square(b + j * ldb + p, ldb, strip + p * kStrip + j);
    }
  }
  for (int64_t j = 0; j < kStrip; ++j) {
    for (int64_t p = j < whole_columns ? whole_depth : 0; p < depth; ++p) {
      strip[p * kStrip + j] = j < columns ? b[j * ldb + p] : 0.0f;
    }
  }
}

void pack_panel(Transpose transpose, const float* a, int64_t lda, int64_t depth, int64_t rows, float* panel) {
  if (transpose == Transpose::no) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(a + r * lda, depth, panel + r * kPanelStride);
  } else if (rows == kRows) {
    for (int64_t p = 0; p < depth; ++p) std::memcpy(panel + p * kRows, a + p * lda, kRows * sizeof(float));
  } else {
    for (int64_t p = 0; p < depth; ++p) std::copy_n(a + p * lda, rows, panel + p * kRows);
  }
}

// One panel of a against all strips of a block of b.
void multiply_panel(MultiplyBlock block, int64_t rows, int64_t columns, int64_t depth, const float* panel,
                    const float* strips, Result result, float* c, int64_t ldc) {
  const int64_t whole = columns / kStrip * kStrip;
  for (int64_t j = 0; j < whole; j += kStrip) block(depth, panel, strips + j * depth, result, c + j, ldc);
  if (whole == columns) return;
  float edge[kRows * kStrip];
  block(depth, panel, strips + whole * depth, Result::set, edge, kStrip);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c + r * ldc + whole;
    for (int64_t j = 0; j < columns - whole; ++j) row[j] = edge[r * kStrip + j] + (result == Result::add ? row[j] : 0);
  }
}

}  // namespace

void packed_product(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
                    int64_t lda, const float* b, int64_t ldb, Result result, float* c, int64_t ldc, float* scratch) {
  const bool a_by_depth = transpose_a == Transpose::yes, b_by_column = transpose_b == Transpose::yes;
  const auto& blocks = a_by_depth ? kBlocks<Panel::by_depth> : kBlocks<Panel::by_row>;
  float *panel = scratch, *strips = scratch + kRows * kPanelStride;
  for (int64_t n0 = 0; n0 < n; n0 += kColumns) {
    const int64_t columns = std::min(kColumns, n - n0);
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, k - k0);
      for (int64_t j = 0; j < columns; j += kStrip) {
        const float* from = b_by_column ? b + (n0 + j) * ldb + k0 : b + k0 * ldb + n0 + j;
        pack_strip(transpose_b, from, ldb, depth, std::min(kStrip, columns - j), strips + j * depth);
      }
      for (int64_t i = 0; i < m; i += kRows) {
        const int64_t rows = std::min(kRows, m - i);
        pack_panel(transpose_a, a_by_depth ? a + k0 * lda + i : a + i * lda + k0, lda, depth, rows, panel);
        multiply_panel(blocks[static_cast<size_t>(rows - 1)], rows, columns, depth, panel, strips,
                       k0 > 0 ? Result::add : result, c + i * ldc + n0, ldc);
      }
    }
  }
}

}  // namespace tessera::cpu

#endif
