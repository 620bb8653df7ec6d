#include "tessera/ops/cuda/attention.h"

#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera::cuda {
namespace {

void check_shapes(View qkv, const AttentionShape& shape, const Dropout& dropout) {
  TESSERA_ASSERT(qkv.shape[1] == shape.row_channels() && shape.head_dim <= kMaxHeadDim);
  TESSERA_ASSERT(shape.num_heads % shape.kv_heads() == 0 && shape.window >= 0);
  TESSERA_ASSERT(shape.layout == QkvLayout::blocked || shape.kv_heads() == shape.num_heads);
  TESSERA_ASSERT(!shape.alibi_slopes || shape.alibi_slopes.num_elems() == shape.num_heads);
  TESSERA_ASSERT(!(dropout.rate > 0) || dropout.row_ids.num_elems() == qkv.shape[0]);
}

}  // namespace

void CudaKernels::attention_forward(const AttentionForward& call) {
  check_shapes(call.qkv, call.shape, call.dropout);
  TESSERA_ASSERT(call.o.shape == (Shape{call.qkv.shape[0], call.shape.num_heads * call.shape.head_dim}));
  TESSERA_ASSERT(!call.log_sum_exp || call.log_sum_exp.shape == (Shape{call.qkv.shape[0], call.shape.num_heads}));
  if (call.qkv.shape[0] == 0) return;
  if (tma_attention_forward_can(context_, call)) return tma_attention_forward(context_, call);
  if (wgmma_attention_can(context_, call.qkv, call.shape)) return wgmma_attention_forward(context_, call);
  if (mma_attention_can(context_, call.qkv, call.shape)) return mma_attention_forward(context_, call);
  if (tiled_attention_can(context_, call.qkv, call.shape)) return tiled_attention_forward(context_, call);
  plain_attention_forward(context_, call);
}

void CudaKernels::attention_backward(const AttentionBackward& call) {
  check_shapes(call.qkv, call.shape, call.dropout);
  TESSERA_ASSERT(call.o.shape == (Shape{call.qkv.shape[0], call.shape.num_heads * call.shape.head_dim}) &&
                 call.d_o.shape == call.o.shape);
  TESSERA_ASSERT(call.workspace.num_elems() >=
                 attention_workspace_elems(call.qkv.dtype, call.shape, call.qkv.shape[0]));
  TESSERA_ASSERT(call.d_qkv.shape == call.qkv.shape &&
                 call.log_sum_exp.shape == (Shape{call.qkv.shape[0], call.shape.num_heads}));
  if (call.qkv.shape[0] == 0) return;
  if (tma_attention_backward_can(context_, call)) return tma_attention_backward(context_, call);
  if (wgmma_attention_can(context_, call.qkv, call.shape)) return wgmma_attention_backward(context_, call);
  if (mma_attention_can(context_, call.qkv, call.shape)) return mma_attention_backward(context_, call);
  if (tiled_attention_can(context_, call.qkv, call.shape)) return tiled_attention_backward(context_, call);
  plain_attention_backward(context_, call);
}

}  // namespace tessera::cuda
