// Sums over rows, for the gradients of biases and of the parameters of norms.
#pragma once

#include <span>

#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// Adds the sum of the rows of x [N, C] to `sums`, in a fixed order. If `second` is empty, `sums` has C elements.
// Otherwise the first columns, as many as `sums` has elements, are added to `sums`, and the other columns to `second`.
// `sums` and `second` have the type of x. If x has 16 bits, they may also be f32. If x is f32, they may also be f16 or
// bf16. All entries of a call have the same types and the same N.
struct ColumnSums {
  View x, sums, second;
};
void add_column_sums(const Context& context, std::span<const ColumnSums> arrays);

}  // namespace tessera::cuda
