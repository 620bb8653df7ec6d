// Rotary positions, and the norms of heads (see ops/kernels.h).
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

void rotary_angles(const Context& context, View positions, View frequencies, double scale, View rotations);
void rotate_heads(const Context& context, View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms,
                  View y);
void rotate_heads_backward(const Context& context, View d_y, View qkv, View rotations, const AttentionShape& shape,
                           const HeadNorms& norms, View d_qkv, View d_query_weight, View d_key_weight);

}  // namespace tessera::cuda
