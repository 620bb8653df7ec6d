// Sums over rows, for the gradients of biases and of the parameters of norms.
#pragma once

#include <span>

#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// sums += Σ rows of x [N, C], in a fixed order. With `second`, the first columns (as many as `sums` has elements) go to
// `sums` and the others to `second`. Sums have x's type, or f32 if x has 16 bits, or 16 bits if x is f32. All entries
// of a call have the same types and the same N.
struct ColumnSums {
  View x, sums, second;
};
void add_column_sums(const Context& context, std::span<const ColumnSums> arrays);

}  // namespace tessera::cuda
