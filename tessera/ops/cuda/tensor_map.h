// Descriptions of arrays for Hopper's copy engine (TMA).
#pragma once

#include <cuda.h>

#include "tessera/base/view.h"

namespace tessera::cuda {

// Describes an array [N, heads, head_dim] of 16-bit elements. Row n begins `row_elems` elements after row n − 1. One
// copy moves 64 columns of one head, in `rows` rows, into a tile with the layout SwizzledRows (tiles.cuh). Elements
// outside the array are read as zeros. head_dim and row_elems must be multiples of 8. Throws RunError if the driver
// rejects the description.
CUtensorMap map_of_heads(View array, int64_t heads, int64_t head_dim, int64_t row_elems, int rows);

}  // namespace tessera::cuda
