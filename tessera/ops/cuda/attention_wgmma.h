// Attention on Hopper's tensor cores (code for sm_90a). Supports 16-bit types and head dimensions that are multiples of
// 8, up to 64. These kernels run if the kernels of attention_tma.h do not support a call or are probably slower.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool wgmma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void wgmma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                             const Dropout& dropout, View o, View log_sum_exp);
void wgmma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                              const AttentionShape& shape, const Dropout& dropout, View d_qkv);

}  // namespace tessera::cuda
