// Causal attention of unpadded sequences, in blocks whose scores stay in the L2 cache. Source: Dao, "FlashAttention-2",
// 2023, algorithms 1 (forward) and 2 (backward). The class Kernels (ops/kernels.h) gives the shapes of the views.
#pragma once

#include "tessera/ops/cpu/attention_shapes.h"
#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void attention_forward(Team& team, AttentionTasks& tasks, View qkv, View starts, const AttentionShape& shape,
                       const Dropout& dropout, View o, View log_sum_exp);
void attention_backward(Team& team, AttentionTasks& tasks, View qkv, View o, View log_sum_exp, View d_o, View starts,
                        const AttentionShape& shape, const Dropout& dropout, View d_qkv);

// Attention for generation, without dropout.
void store_keys_values(Team& team, View qkv, View starts, const AttentionShape& shape, View cache_starts, View keys,
                       View values);
void attention_decode(Team& team, View qkv, const AttentionShape& shape, View cache_starts, View lengths, View keys,
                      View values, View o);

}  // namespace tessera::cpu
