// Attention (see ops/kernels.h). attention_forward() and attention_backward() choose kernels for each call:
// - Calls with 16-bit types use tensor cores (attention_tma.h, attention_wgmma.h, attention_mma.h), if the GPU and the
//   head dimension allow this.
// - Calls with f32 use tiles in shared memory (attention_tiled.h), if the GPU and the head dimension allow this.
// - All other calls use plain kernels (attention_plain.h).
// store_keys_values() and attention_decode(), which only generation calls, have kernels in decode.cu.
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
