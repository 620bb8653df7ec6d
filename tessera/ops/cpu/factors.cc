// Joins the factors of adapters into one matrix, and splits its gradient (Kernels::join_factors, split_factors).
#include <vector>

#include "tessera/ops/cpu/cpu_kernels.h"

namespace tessera::cpu {

namespace {

// Calls body(row_of_joined, row_of_factor) for each row of a factor, with the views of the row's elements.
template <typename Body>
void for_rows(Team& team, View joined, const FactorPlace& place, const Body& body) {
  const int64_t rows = place.factor.shape[0], columns = place.factor.shape[1], width = joined.shape[1];
  TESSERA_ASSERT(place.row + rows <= joined.shape[0] && place.column + columns <= width);
  const View flat_joined{joined.data, joined.dtype, {joined.num_elems()}},
      flat_factor{place.factor.data, place.factor.dtype, {place.factor.num_elems()}};
  team.for_ranges(rows, 16, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = (place.row + row) * width + place.column;
      body(flat_joined.rows(at, at + columns), flat_factor.rows(row * columns, (row + 1) * columns));
    }
  });
}

// to = scale · from, or to += scale · from. Computes in f64 and rounds once.
void scale_into(View from, double scale, bool adds, View to) {
  const auto count = static_cast<size_t>(from.num_elems());
  std::vector<double> values(count), before(adds ? count : 0);
  tessera::convert(from.data, from.dtype, values.data(), DType::f64, count);
  if (adds) tessera::convert(to.data, to.dtype, before.data(), DType::f64, count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * values[i] + (adds ? before[i] : 0);
  tessera::convert(values.data(), DType::f64, to.data, to.dtype, count);
}

}  // namespace

void CpuKernels::join_factors(std::span<const FactorPlace> factors, View joined) {
  TESSERA_ASSERT(factors.size() <= kMaxFactors);
  fill(joined, 0);
  for (const FactorPlace& place : factors) {
    for_rows(team_, joined, place,
             [&](View in_joined, View in_factor) { scale_into(in_factor, place.scale, false, in_joined); });
  }
}

void CpuKernels::split_factors(View joined, std::span<const FactorPlace> factors, bool fresh) {
  TESSERA_ASSERT(factors.size() <= kMaxFactors);
  for (const FactorPlace& place : factors) {
    for_rows(team_, joined, place,
             [&](View in_joined, View in_factor) { scale_into(in_joined, place.scale, !fresh, in_factor); });
  }
}

}  // namespace tessera::cpu
