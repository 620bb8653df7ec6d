// Attention of wide heads on Hopper (code for sm_90a): 16-bit types, heads of 72 to 128 elements, in multiples of 8, no
// dropout.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

bool wide_attention_can(const Context& context, View qkv, const AttentionShape& shape, const Dropout& dropout);
void wide_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape, View o,
                            View log_sum_exp);
void wide_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                             const AttentionShape& shape, View d_qkv);

}  // namespace tessera::cuda
