// Attention on Hopper (code for sm_90a). Hopper's copy engine (TMA) loads the tiles. Supports 16-bit types and head
// dimensions that are multiples of 8, up to 128. Does not support dropout.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

// Return whether these kernels support the call, and are probably faster for it than the other attention kernels.
bool tma_attention_forward_can(const Context& context, View qkv, View starts, const AttentionShape& shape,
                               const Dropout& dropout);
bool tma_attention_backward_can(const Context& context, View qkv, View starts, const AttentionShape& shape,
                                const Dropout& dropout);
void tma_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape, View o,
                           View log_sum_exp);
void tma_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                            const AttentionShape& shape, View d_qkv, View workspace);

}  // namespace tessera::cuda
