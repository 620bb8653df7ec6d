// Matrices in 8 bits: their scales, and their places in larger arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/float8.h"
#include "tessera/base/view.h"

namespace tessera {

// A factor of a product in 8 bits, [R, K] (base/float8.h). The products of a linear layer sum over K. With b =
// kFloat8Block, element (r, k) is values[r, k] · scales[k / b, r], and with `squares` values[r, k] · scales[r / b, k /
// b]. cuBLASLt is fast if the left factor of a product (x, or d_y) has a scale for b terms of a row, and the right
// factor (weight, or x in the gradient of the weight) has a scale for a square of b · b values. Linear chooses these.
struct Float8Matrix {
  View values;  // [R, K] e4m3
  View scales;  // f32, float8_scales()
  bool squares = false;
  explicit operator bool() const { return static_cast<bool>(values); }
};
// The shape of the scales. A row for squares has space for a multiple of 4 scales, as cuBLASLt needs.
inline Shape float8_scales(int64_t rows, int64_t columns, bool squares) {
  const auto blocks = [](int64_t elems) { return (elems + kFloat8Block - 1) / kFloat8Block; };
  return squares ? Shape{blocks(rows), (blocks(columns) + 3) / 4 * 4} : Shape{blocks(columns), rows};
}
// The sum over rows of a matrix [R, K] has this many terms: R, and zeros up to a multiple that products need.
inline int64_t float8_terms(int64_t rows) {
  constexpr int64_t kMultiple = 16;
  return (rows + kMultiple - 1) / kMultiple * kMultiple;
}

// A matrix [rows, columns] with squares among the elements of an array: it begins at element `offset`. Its scales begin
// at number `first_scale` among the scales of the array.
struct Float8Place {
  int64_t offset = 0, rows = 0, columns = 0, first_scale = 0;
};
inline constexpr size_t kMaxFloat8Places = 16;  // of Kernels::Float8Shard

}  // namespace tessera
