// The arithmetic of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

// out[i] = (inputs[0][i] + inputs[1][i]) + …, in this order. 16-bit types are summed in f32 and rounded once; integers
// wrap around. Each array has `num_elems` elements. `out` may be one of the inputs; any other overlap is not allowed.
void sum_in_order(const std::vector<const std::byte*>& inputs, std::byte* out, int64_t num_elems, DType dtype);

}  // namespace tessera
