// Attention on tensor cores (code for sm_80 or later). Supports 16-bit types and head dimensions that are multiples of
// 8, up to 128. On Hopper with code for sm_90a, these kernels run only if the head dimension is greater than 64, and
// the call has dropout or is a backward pass with too many rows for attention_tma.h.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void mma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                           const Dropout& dropout, View o, View log_sum_exp);
void mma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, const Dropout& dropout, View d_qkv);

}  // namespace tessera::cuda
