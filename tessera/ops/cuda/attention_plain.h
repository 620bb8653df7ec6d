// Attention of any type and any head: a warp a query, or a warp a key. Correct and slow.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

void plain_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                             const Dropout& dropout, View o, View log_sum_exp);
void plain_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                              const AttentionShape& shape, const Dropout& dropout, View d_qkv);

// What every backward kernel needs first: deltas[row, head] = Σ_d d_o∘o of the heads from `first` to `end`, to the
// scratch.
void attention_deltas(const Context& context, View o, View d_o, const AttentionShape& shape, int first, int end);
// The heads whose deltas fit the scratch together.
int heads_at_once(int64_t num_rows, int64_t num_heads, int64_t element_bytes);

}  // namespace tessera::cuda
