// Attention for any type and any head: one warp per query or per key. It is correct but slow.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

void plain_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                             const Dropout& dropout, View o, View log_sum_exp);
void plain_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                              const AttentionShape& shape, const Dropout& dropout, View d_qkv);

// Writes sums for the backward kernels to the scratch: deltas[row, head] = Σ_d d_o∘o for heads [first, end).
void attention_deltas(const Context& context, View o, View d_o, const AttentionShape& shape, int first, int end);
// The number of query heads whose deltas fit into the scratch together: complete groups of `group` heads. num_rows must
// be at most kScratchBytes / (group · element_bytes), so that one group fits.
int heads_at_once(int64_t num_rows, int64_t num_heads, int64_t group, int64_t element_bytes);

}  // namespace tessera::cuda
