// Attention on tensor cores (code for sm_80 and later): 16-bit types, heads of up to 128 elements, in multiples of 8.
// On Hopper, it serves only calls that neither attention_wgmma.h nor attention_tma.h supports: heads of more than 64
// elements with dropout.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void mma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                           const Dropout& dropout, View o, View log_sum_exp);
void mma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, const Dropout& dropout, View d_qkv);

}  // namespace tessera::cuda
