// Numbers of floating-point operations of matrix products and of attention, 2 per multiply-add. Every device and the
// plan use these functions.
#pragma once

#include <cstdint>

namespace tessera {

// The product [N, I] · [I, O] of a linear layer's forward pass. The backward pass has two products, and each of them
// needs the same number of operations.
inline int64_t linear_flops(int64_t num_rows, int64_t channels_in, int64_t channels_out) {
  return 2 * num_rows * channels_in * channels_out;
}

// Causal attention over one sequence: q·kᵀ and p·v each need 2 · channels operations per pair of a query and a position
// that it sees. `channels` is the number of channels of all query heads together. Query heads that share a key head do
// not need fewer operations. If `window` is not 0, a query sees at most `window` positions.
inline int64_t attention_forward_flops(int64_t num_tokens, int64_t channels, int64_t window = 0) {
  // The number of positions that the window hides from the last query. From the query before the last, it hides
  // hidden - 1 positions, and so on. Therefore hidden + (hidden - 1) + … + 1 pairs do not count.
  const int64_t hidden = window > 0 && num_tokens > window ? num_tokens - window : 0;
  return 4 * channels * (num_tokens * (num_tokens + 1) / 2 - hidden * (hidden + 1) / 2);
}

// The forward and the backward pass. The backward pass costs 2.5 times the forward pass: it computes the scores again,
// and then four more products. `recomputed`: the forward pass runs twice.
inline int64_t attention_training_flops(int64_t num_tokens, int64_t channels, int64_t window, bool recomputed) {
  return attention_forward_flops(num_tokens, channels, window) * (recomputed ? 9 : 7) / 2;
}

}  // namespace tessera
