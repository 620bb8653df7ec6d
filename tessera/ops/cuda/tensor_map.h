// Descriptions of arrays for Hopper's copy engine (TMA).
#pragma once

#include <cuda.h>

#include "tessera/base/view.h"

namespace tessera::cuda {

// Describes a 16-bit array [N, heads, head_dim]. Its rows are `row_elems` elements apart. One copy moves `rows` rows
// and 64 columns of a head into the layout SwizzledRows. Elements beyond the array are read as zeros. head_dim and
// row_elems are multiples of 8. Throws RunError if the driver refuses the description.
CUtensorMap map_of_heads(View array, int64_t heads, int64_t head_dim, int64_t row_elems, int rows);

}  // namespace tessera::cuda
