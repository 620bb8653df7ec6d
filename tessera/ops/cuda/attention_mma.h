// Attention on tensor cores (code for sm_80 and later): 16-bit types, heads of a multiple of 8 up to 128 elements. On
// Hopper it serves only heads that are too wide for attention_wgmma.h.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void mma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                           const Dropout& dropout, View o, View log_sum_exp);
void mma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, const Dropout& dropout, View d_qkv);

}  // namespace tessera::cuda
