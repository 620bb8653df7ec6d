// Floating-point operations of the products, 2 a multiply-add: one place for every device and for the plan.
#pragma once

#include <cstdint>

namespace tessera {

// [N, I] · [I, O]; the same for each of the two products of the backward pass.
inline int64_t linear_flops(int64_t num_rows, int64_t channels_in, int64_t channels_out) {
  return 2 * num_rows * channels_in * channels_out;
}

// Causal attention over one sequence of T tokens: q·kᵀ and p·v, each 2·C a pair of positions.
inline int64_t attention_forward_flops(int64_t num_tokens, int64_t channels) {
  return 4 * channels * (num_tokens * (num_tokens + 1) / 2);
}

// With the backward pass, which costs 2.5 times the forward: the scores again, and four products more. A checkpointed
// block runs forward twice.
inline int64_t attention_training_flops(int64_t num_tokens, int64_t channels, bool checkpointed) {
  return attention_forward_flops(num_tokens, channels) * (checkpointed ? 9 : 7) / 2;
}

}  // namespace tessera
