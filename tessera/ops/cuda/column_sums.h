// Sums over rows: gradients of biases, and of what a layer norm's rows have in common.
#pragma once

#include <span>

#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// sums += Σ rows of x [N, C], in a fixed order. With `second` the first columns, as many as `sums` has elements, go to
// that and the others to `second`. Sums are of x's type, of f32 if that has 16 bits, or of 16 bits if x is f32. All of
// a call are of one type and N.
struct ColumnSums {
  View x, sums, second;
};
void add_column_sums(const Context& context, std::span<const ColumnSums> arrays);

}  // namespace tessera::cuda
