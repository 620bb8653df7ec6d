// Rotary positions, and the norms that Qwen3 applies to the heads before the rotation. The contracts are in
// ops/kernels.h.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void rotary_angles(Team& team, View positions, View frequencies, double scale, View rotations);
void rotate_heads(Team& team, View qkv, View rotations, const AttentionShape& shape, const HeadNorms& norms, View y);
void rotate_heads_backward(Team& team, View d_y, View qkv, View rotations, const AttentionShape& shape,
                           const HeadNorms& norms, View d_qkv, View d_query_weight, View d_key_weight);

}  // namespace tessera::cpu
