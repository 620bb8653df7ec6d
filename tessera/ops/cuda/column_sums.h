// Sums over rows, for the gradients of biases and of the parameters of norms.
#pragma once

#include <span>

#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// Adds the sum of each column of x [N, C] to `sums`, in a fixed order of the rows. If `second` is empty, `sums` has C
// elements. Otherwise `sums` has S < C elements and gets the sums of the first S columns; `second` gets the sums of the
// other C − S columns. `sums` and `second` have the type of x. If x has 16 bits, they may also be f32. If x is f32,
// they may also be f16 or bf16. In one call of add_column_sums(), all `x` have the same type and the same N, and all
// `sums` and `second` have the same type.
struct ColumnSums {
  View x, sums, second;
};
void add_column_sums(const Context& context, std::span<const ColumnSums> arrays);

}  // namespace tessera::cuda
