// The product c [m, n] = a [m, k] · b [k, n]. packed_product() copies two things to scratch memory: a block of `b` with
// up to 512 rows and 256 columns, as strips of 32 columns; and up to four panels of `a`, with 14 rows each. The block
// and the panels fit in L2 together, and the panel in use stays in L1. The micro-kernel multiplies a panel by a strip.
// It holds the 14 × 32 sums in 28 of the 32 vector registers. For each step of k, it loads two vectors of `b` and
// broadcasts 14 elements of `a`, and uses them in 28 multiply-adds. Therefore neither loads nor the cache limit the
// speed.
#include "tessera/ops/cpu/packed_product.h"

#if defined(__AVX512F__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/math.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kRows = 14, kStrip = 32, kLanes = 16;
constexpr int64_t kDepth = 512, kColumns = 256, kPanels = 4;
// In bytes, the stride must not be a multiple of 4 KiB. Otherwise the rows of a panel would share cache sets.
constexpr int64_t kPanelStride = kPackedRowStride;
constexpr int64_t kPanelElems = kRows * kPanelStride;
static_assert(kPanels * kPanelElems + kDepth * kColumns + kTileRows * kTileColumns == kProductScratchElems);
static_assert(kTileColumns == kColumns && kRowUnit == kRows && kColumnUnit == kStrip && kMaxPackedDepth == kDepth);

using Vector = float __attribute__((vector_size(64), may_alias));
using UnalignedVector = float __attribute__((vector_size(64), aligned(4), may_alias));

// Memory beyond L2 has a long latency. The data that is packed next is therefore prefetched during other work.
void prefetch(const float* from) {
  __builtin_prefetch(from, 0, 2);
}

Vector load(const float* from) {
  return *reinterpret_cast<const UnalignedVector*>(from);
}
void store(float* to, Vector value) {
  *reinterpret_cast<UnalignedVector*>(to) = value;
}

// The layout of a panel of `a` in scratch. by_row: kRows rows of kPanelStride elements. by_depth, if `a` is transposed:
// one row of kRows elements for each step of k.
enum class Panel { by_row, by_depth };

// What a micro-kernel prefetches: at step p of k, the addresses first + p · step and second + p · step.
struct Ahead {
  const float *first, *second;
  int64_t step;
};

// The micro-kernel: c [Rows, 32] = or += panel [Rows, depth] · strip [depth, 32].
template <int Rows, Panel kPanel>
void multiply_block(int64_t depth, const float* panel, const float* strip, Result result, float* c, int64_t ldc,
                    Ahead ahead) {
  Vector sums[size_t{Rows}][2] = {};
  auto add_products = [&](int64_t p) {
    const Vector b0 = load(strip + p * kStrip), b1 = load(strip + p * kStrip + kLanes);
#pragma GCC unroll 14
    for (int64_t r = 0; r < Rows; ++r) {
      const float a = kPanel == Panel::by_row ? panel[r * kPanelStride + p] : panel[p * kRows + r];
      sums[r][0] += a * b0;
      sums[r][1] += a * b1;
    }
  };
#pragma GCC unroll 4
  for (int64_t p = 0; p < depth; ++p) {
    prefetch(ahead.first + p * ahead.step);
    prefetch(ahead.second + p * ahead.step);
    add_products(p);
  }
#pragma GCC unroll 14
  for (int64_t r = 0; r < Rows; ++r) {
    float* row = c + r * ldc;
    store(row, result == Result::add ? load(row) + sums[r][0] : sums[r][0]);
    store(row + kLanes, result == Result::add ? load(row + kLanes) + sums[r][1] : sums[r][1]);
  }
}

using MultiplyBlock = void (*)(int64_t, const float*, const float*, Result, float*, int64_t, Ahead);

// The micro-kernels for 1 … 14 rows.
template <Panel kPanel, size_t... I>
constexpr std::array<MultiplyBlock, sizeof...(I)> blocks_of(std::index_sequence<I...>) {
  return {multiply_block<static_cast<int>(I) + 1, kPanel>...};
}
template <Panel kPanel>
constexpr auto kBlocks = blocks_of<kPanel>(std::make_index_sequence<kRows>());

// Exchanges the two off-diagonal quarters of every square of 2·Width × 2·Width elements. Four such steps, with Width =
// 8, 4, 2 and 1, transpose 16 vectors.
template <int Width, int... I>
void exchange(Vector (&v)[kLanes], std::integer_sequence<int, I...>) {
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    if (r & Width) continue;
    const Vector first = v[r], second = v[r + Width];
    v[r] = __builtin_shufflevector(first, second, (I & Width ? 16 + I - Width : I)...);
    v[r + Width] = __builtin_shufflevector(first, second, (I & Width ? 16 + I : I + Width)...);
  }
}

// to [16, 16] = from [16, 16] transposed. The row strides are 32 (to) and ld (from). Also prefetches the 16 rows after
// `from`.
void transpose_square(const float* from, int64_t ld, float* to) {
  Vector v[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    v[r] = load(from + r * ld);
    prefetch(from + (r + kLanes) * ld);
  }
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  exchange<8>(v, kAll);
  exchange<4>(v, kAll);
  exchange<2>(v, kAll);
  exchange<1>(v, kAll);
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) store(to + r * kStrip, v[r]);
}

// Packs one strip of b. Here b is stored as [columns, depth], with columns ≤ 32.
void pack_transposed_strip(const float* b, int64_t ldb, int64_t depth, int64_t columns, float* strip) {
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

// Packs a block of b [depth, columns] into strips of depth · 32 elements. The last strip is filled up with zeros.
void pack_strips(Transpose transpose, const float* b, int64_t ldb, int64_t depth, int64_t columns, float* strips) {
  if (transpose == Transpose::yes) {
    for (int64_t j = 0; j < columns; j += kStrip) {
      pack_transposed_strip(b + j * ldb, ldb, depth, std::min(kStrip, columns - j), strips + j * depth);
    }
    return;
  }
  const int64_t whole = columns / kStrip * kStrip;
  for (int64_t p = 0; p < depth; ++p) {
    const float* row = b + p * ldb;
    for (int64_t j = 0; j < whole; j += kStrip) {
      prefetch(row + 8 * ldb + j);
      prefetch(row + 8 * ldb + j + kLanes);
      float* to = strips + j * depth + p * kStrip;
      store(to, load(row + j));
      store(to + kLanes, load(row + j + kLanes));
    }
    if (whole == columns) continue;
    float* to = strips + whole * depth + p * kStrip;
    std::fill(std::copy(row + whole, row + columns, to), to + kStrip, 0.0f);
  }
}

// Packs up to kPanels panels of `a`, together `rows` rows.
void pack_panels(Transpose transpose, const float* a, int64_t lda, int64_t depth, int64_t rows, float* panels) {
  if (transpose == Transpose::no) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(a + r * lda, depth, panels + r / kRows * kPanelElems + r % kRows * kPanelStride);
    }
    return;
  }
  // Each step of k loads up to 14 elements, but stores 16 lanes. The next step overwrites the last two lanes.
  constexpr __mmask16 kRowLanes = (1u << kRows) - 1;
  for (int64_t p = 0; p < depth; ++p) {
    const float* from = a + p * lda;
    float* to = panels + p * kRows;
    for (int64_t r = 0; r < rows; r += kRows, to += kPanelElems) {
      const auto lanes = static_cast<__mmask16>(kRowLanes >> std::max<int64_t>(0, r + kRows - rows));
      store(to, _mm512_maskz_loadu_ps(lanes, from + r));
    }
  }
}

// The part of `a` for one call of pack_panels(). In memory, it has `rows` rows and `depth` columns or, if `a` is
// transposed, `depth` rows and `rows` columns. It begins at `at`, and its row stride is `ld`.
struct Source {
  const float* at;
  int64_t ld, depth, rows;
};

// Returns what call number `call` of the micro-kernel prefetches from `next`, the part of `a` that is packed next. The
// number starts from 0 in every multiply_panels(). If `a` is not transposed, each call prefetches two rows, and 28
// calls prefetch four panels. If `a` is transposed, each call prefetches two cache lines of every row.
Ahead ahead_of(Transpose transpose, const Source& next, int64_t call) {
  if (transpose == Transpose::no) {
    const int64_t first = std::min(2 * call, next.rows - 1), second = std::min(first + 1, next.rows - 1);
    return {next.at + first * next.ld, next.at + second * next.ld, 1};
  }
  const int64_t first = 2 * call * kLanes;
  if (first >= next.rows) return {next.at, next.at, 0};
  return {next.at + first, next.at + std::min(first + kLanes, next.rows - 1), next.ld};
}

// Prefetches the cache lines of a block [rows, 32], which is read or written after the micro-kernel's multiplications.
void prefetch_block(const float* block, int64_t ld, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    __builtin_prefetch(block + r * ld, 1);
    __builtin_prefetch(block + r * ld + kLanes, 1);
  }
}

// Where the product of a group of panels is written (`c`), and the arrays to prefetch at the same rows and columns
// (`touched`, with row stride `ld`; an unused entry is null).
struct Target {
  Result result;
  float* c;
  int64_t ldc;
  std::array<const float*, 3> touched;
  int64_t ld;
};

// Runs the micro-kernel for `columns` ≤ 32 columns of c. If c has fewer than 32 columns here (at its right edge), the
// micro-kernel writes to a temporary block of 32 columns first.
void multiply_edge(MultiplyBlock block, int64_t rows, int64_t columns, int64_t depth, const float* panel,
                   const float* strip, Result result, float* c, int64_t ldc, Ahead ahead) {
  if (columns == kStrip) return block(depth, panel, strip, result, c, ldc, ahead);
  float edge[kRows * kStrip];
  block(depth, panel, strip, Result::set, edge, kStrip, ahead);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c + r * ldc;
    for (int64_t j = 0; j < columns; ++j) row[j] = edge[r * kStrip + j] + (result == Result::add ? row[j] : 0);
  }
}

// Multiplies up to kPanels panels of `a` by all strips of a block of `b`.
void multiply_panels(Transpose transpose_a, int64_t rows, int64_t columns, int64_t depth, const float* panels,
                     const float* strips, const Target& target, const Source& next) {
  const auto& blocks = transpose_a == Transpose::yes ? kBlocks<Panel::by_depth> : kBlocks<Panel::by_row>;
  int64_t call = 0;
  for (int64_t i = 0; i < rows; i += kRows) {
    const int64_t panel_rows = std::min(kRows, rows - i);
    const MultiplyBlock block = blocks[static_cast<size_t>(panel_rows - 1)];
    for (int64_t j = 0; j < columns; j += kStrip) {
      for (const float* touched : target.touched) {
        if (touched) prefetch_block(touched + i * target.ld + j, target.ld, panel_rows);
      }
      multiply_edge(block, panel_rows, std::min(kStrip, columns - j), depth, panels + i / kRows * kPanelElems,
                    strips + j * depth, target.result, target.c + i * target.ldc + j, target.ldc,
                    ahead_of(transpose_a, next, call++));
    }
  }
}

// Splits k into parts of at most kDepth, and returns the depth of a part. The depth is a multiple of kLanes, so the
// last part may be smaller than the others.
int64_t depth_of_parts(int64_t k) {
  const int64_t parts = ceil_divide(k, kDepth), depth = ceil_divide(k, parts);
  return round_up(depth, kLanes);
}

// The target for the product's rows from i on and columns from n0 on, for the part of k that begins at k0.
Target target_of(Result result, float* c, int64_t ldc, const Continuation<float>* continuation, int64_t i, int64_t n0,
                 int64_t k0, bool last_part) {
  Target target{k0 > 0 ? Result::add : result, c, ldc, {}, 0};
  if (!continuation) {
    target.c += i * ldc + n0;
    target.touched[0] = target.c;
    target.ld = ldc;
    return target;
  }
  // With a continuation, c is a tile in scratch. If k has only one part, the continuation uses the product of a group
  // of panels before the next group begins. All groups then use the same rows of the tile.
  if (k0 > 0 || !last_part) target.c += i * ldc;
  if (!last_part) return target;
  target.ld = continuation->ld;
  for (size_t t = 0; t < target.touched.size(); ++t) {
    const float* touched = continuation->touched[t];
    target.touched[t] = touched ? touched + i * target.ld + n0 : nullptr;
  }
  return target;
}

}  // namespace

void packed_product(const Factors<float>& f, Result result, float* c, int64_t ldc,
                    const Continuation<float>* continuation, float* scratch) {
  float *panels = scratch, *strips = panels + kPanels * kPanelElems;
  if (continuation) c = strips + kDepth * kColumns, ldc = kTileColumns;
  const int64_t part = depth_of_parts(f.k), group = kPanels * kRows;
  auto source = [&](int64_t i, int64_t k0) {
    return Source{f.transpose_a == Transpose::yes ? f.a + k0 * f.lda + i : f.a + i * f.lda + k0, f.lda,
                  std::min(part, f.k - k0), std::min(group, f.m - i)};
  };
  for (int64_t n0 = 0; n0 < f.n; n0 += kColumns) {
    const int64_t columns = std::min(kColumns, f.n - n0);
    for (int64_t k0 = 0; k0 < f.k; k0 += part) {
      const int64_t depth = std::min(part, f.k - k0);
      const bool last_part = k0 + part >= f.k;
      pack_strips(f.transpose_b, f.transpose_b == Transpose::yes ? f.b + n0 * f.ldb + k0 : f.b + k0 * f.ldb + n0, f.ldb,
                  depth, columns, strips);
      for (int64_t i = 0; i < f.m; i += group) {
        const Source now = source(i, k0);
        const Source next = i + group < f.m ? source(i + group, k0) : last_part ? now : source(0, k0 + part);
        const Target target = target_of(result, c, ldc, continuation, i, n0, k0, last_part);
        pack_panels(f.transpose_a, now.at, f.lda, depth, now.rows, panels);
        multiply_panels(f.transpose_a, now.rows, columns, depth, panels, strips, target, next);
        if (continuation && last_part) continuation->then(i, now.rows, n0, columns, target.c, ldc);
      }
    }
  }
}

Packed<float> pack_factor(Transpose transpose, int64_t depth, int64_t columns, const float* b, int64_t ldb,
                          float* room) {
  pack_strips(transpose, b, ldb, depth, columns, room);
  return {Transpose::no, depth, columns, room, kStrip};
}

void product_with_packed(int64_t m, int64_t columns, int64_t depth, const float* a, int64_t lda, const Packed<float>& b,
                         Result result, float* c, int64_t ldc, float* scratch) {
  for (int64_t i = 0; i < m; i += kRows) {
    const int64_t rows = std::min(kRows, m - i);
    const MultiplyBlock block = kBlocks<Panel::by_row>[static_cast<size_t>(rows - 1)];
    const float* panel = a + i * lda;
    if (lda != kPanelStride) {
      pack_panels(Transpose::no, panel, lda, depth, rows, scratch);
      panel = scratch;
    }
    for (int64_t j = 0; j < columns; j += kStrip) {
      multiply_edge(block, rows, std::min(kStrip, columns - j), depth, panel, b.at + j * b.depth, result,
                    c + i * ldc + j, ldc, {panel, panel, 0});
    }
  }
}

}  // namespace tessera::cpu

#endif
