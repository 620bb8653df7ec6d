// Finds elements of a floating-point array that are NaN or infinite.
#pragma once

#include <cstdint>

#include "tessera/base/view.h"

namespace tessera {

// Returns the index of the first element of `x` that is NaN or infinite, or that becomes infinite when rounded to `as`.
// Returns −1 if `x` has no such element. `x` is in host memory and has the type f64, f32, f16 or bf16.
int64_t find_non_finite(View x, DType as);
inline int64_t find_non_finite(View x) {
  return find_non_finite(x, x.dtype);
}

// The largest finite value of a floating-point type.
double largest_of(DType dtype);

}  // namespace tessera
