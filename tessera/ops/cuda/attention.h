// The kernels of attention. CudaKernels::attention_forward() and attention_backward() choose for each call:
// - Calls with 16-bit types use tensor cores (tma_, wgmma_, mma_), if the GPU and the head dimension allow this.
// - Calls with f32 use tiles in shared memory (tiled_), if the GPU and the head dimension allow this.
// - All other calls use plain kernels (plain_).
// store_keys_values() and attention_decode(), which only generation calls, have kernels in decode.cu.
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

// Hopper (code for sm_90a). Hopper's copy engine (TMA) loads the tiles. Supports 16-bit types and head dimensions that
// are multiples of 8, up to 128. Does not support dropout.
// The functions tma_…_can() return whether these kernels support the call, and are probably faster for it than the
// other kernels.
bool tma_attention_forward_can(const Context& context, const Kernels::AttentionForward& call);
bool tma_attention_backward_can(const Context& context, const Kernels::AttentionBackward& call);
void tma_attention_forward(const Context& context, const Kernels::AttentionForward& call);
void tma_attention_backward(const Context& context, const Kernels::AttentionBackward& call);

// Hopper's tensor cores (code for sm_90a). Supports 16-bit types and head dimensions that are multiples of 8, up to 64.
// These kernels run if the kernels with TMA do not support a call or are probably slower.
bool wgmma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void wgmma_attention_forward(const Context& context, const Kernels::AttentionForward& call);
void wgmma_attention_backward(const Context& context, const Kernels::AttentionBackward& call);

// Tensor cores (code for sm_80 or later). Supports 16-bit types and head dimensions that are multiples of 8, up to 128.
// On Hopper with code for sm_90a, these kernels run only if the head dimension is greater than 64, and the call has
// dropout or is a backward pass with too many rows for the kernels with TMA.
bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void mma_attention_forward(const Context& context, const Kernels::AttentionForward& call);
void mma_attention_backward(const Context& context, const Kernels::AttentionBackward& call);

// f32 attention on tiles in shared memory, for heads of up to 128 elements. It does not use tensor cores, because they
// compute f32 products in tf32. tf32 keeps only 11 significant bits of each factor.
bool tiled_attention_can(const Context& context, View qkv, const AttentionShape& shape);
void tiled_attention_forward(const Context& context, const Kernels::AttentionForward& call);
void tiled_attention_backward(const Context& context, const Kernels::AttentionBackward& call);

// Any floating-point type and any head dimension up to kMaxHeadDim. In the forward pass, one warp computes the output
// of one query and head. In backward, one warp computes the gradient of one query, or the gradients of one key and its
// value. These kernels are slow.
void plain_attention_forward(const Context& context, const Kernels::AttentionForward& call);
void plain_attention_backward(const Context& context, const Kernels::AttentionBackward& call);

// Computes the deltas that the backward kernels need. The delta of a row and a head is the sum of d_o∘o over the
// elements of the head. Writes the deltas of the heads [first, end) to the scratch, as an array [N, end − first].
void attention_deltas(const Context& context, View o, View d_o, const AttentionShape& shape, int first, int end);
// Returns how many query heads one launch can process: the greatest number, up to num_heads, whose deltas fit into the
// scratch together. This number is a multiple of `group`, the number of query heads per head of keys and values. The
// deltas of one query head take num_rows · element_bytes bytes. The deltas of one group must fit.
int heads_at_once(int64_t num_rows, int64_t num_heads, int64_t group, int64_t element_bytes);

}  // namespace tessera::cuda
