// Attention for any floating-point type and any head dimension up to kMaxHeadDim. In the forward pass, one warp
// computes the output of one query and head. In backward, one warp computes the gradient of one query, or the gradients
// of one key and its value. These kernels are slow.
#pragma once

#include "tessera/ops/cuda/attention.h"

namespace tessera::cuda {

void plain_attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                             const Dropout& dropout, View o, View log_sum_exp);
void plain_attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                              const AttentionShape& shape, const Dropout& dropout, View d_qkv);

// Computes the deltas that the backward kernels need. The delta of a row and a head is the sum of d_o∘o over the
// elements of the head. Writes the deltas of the heads [first, end) to the scratch, as an array [N, end − first].
void attention_deltas(const Context& context, View o, View d_o, const AttentionShape& shape, int first, int end);
// Returns how many query heads one launch can process: the greatest number, up to num_heads, whose deltas fit into the
// scratch together. This number is a multiple of `group`, the number of query heads per head of keys and values. The
// deltas of one query head take num_rows · element_bytes bytes. The deltas of one group must fit.
int heads_at_once(int64_t num_rows, int64_t num_heads, int64_t group, int64_t element_bytes);

}  // namespace tessera::cuda
