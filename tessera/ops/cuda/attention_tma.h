// Attention on Hopper with tiles that its copy engine (TMA) loads (code for sm_90a): 16-bit types, heads of up to 128
// elements, in multiples of 8, no dropout.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

// Whether the kernels support the call, and are the fastest for it.
bool tma_attention_forward_can(const Context& context, View qkv, View starts, const AttentionShape& shape,
                               const Dropout& dropout);
bool tma_attention_backward_can(const Context& context, View qkv, View starts, const AttentionShape& shape,
                                const Dropout& dropout);
void tma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape, View o,
                           View log_sum_exp);
void tma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, View d_qkv, View workspace);

}  // namespace tessera::cuda
