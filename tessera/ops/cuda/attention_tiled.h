// f32 attention on tiles in shared memory, for heads of up to 128 elements. It does not use tensor cores, because they
// compute f32 products in tf32. tf32 keeps only 11 significant bits of each factor.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool tiled_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void tiled_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                             const Dropout& dropout, View o, View log_sum_exp);
void tiled_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                              const AttentionShape& shape, const Dropout& dropout, View d_qkv);

}  // namespace tessera::cuda
