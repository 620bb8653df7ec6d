// Facts about the elements of an array, for the choice of cuBLASLt's algorithms (products.cc). Both functions wait for
// the GPU. `sum` points to 8 bytes of GPU memory, which they overwrite.
#pragma once

#include "tessera/ops/cuda/context.h"

namespace tessera::cuda {

// Returns a number that almost certainly differs for arrays with different bits.
uint64_t hash_of(const Context& context, View x, unsigned long long* sum);
// Returns the number of elements that are neither zero, infinite nor NaN.
int64_t count_finite_nonzero(const Context& context, View x, unsigned long long* sum);

}  // namespace tessera::cuda
