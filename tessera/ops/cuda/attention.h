// Attention (see ops/kernels.h). If the GPU and the head dimension allow it, 16-bit types use tensor cores
// (attention_wgmma.h, attention_tma.h, attention_mma.h), and f32 uses tiles (attention_tiled.h). All other calls use
// plain kernels (attention_plain.h).
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

void attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                       const Dropout& dropout, View o, View log_sum_exp);
void attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                        const AttentionShape& shape, const Dropout& dropout, View d_qkv, View workspace);
void store_keys_values(const Context& context, View qkv, View starts, const AttentionShape& shape, View cache_starts,
                       View keys, View values);
void attention_decode(const Context& context, View qkv, const AttentionShape& shape, View cache_starts, View lengths,
                      View keys, View values, View o);

}  // namespace tessera::cuda
