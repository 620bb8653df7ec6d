#include "tessera/ops/cuda/attention.h"

#include "tessera/ops/cuda/attention_mma.h"
#include "tessera/ops/cuda/attention_plain.h"
#include "tessera/ops/cuda/attention_tiled.h"
#include "tessera/ops/cuda/attention_tma.h"
#include "tessera/ops/cuda/attention_wgmma.h"

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

void attention_forward(const Context& context, View qkv, View starts, const AttentionShape& shape,
                       const Dropout& dropout, View o, View log_sum_exp) {
  check_shapes(qkv, shape, dropout);
  TESSERA_ASSERT(o.shape == (Shape{qkv.shape[0], shape.num_heads * shape.head_dim}));
  TESSERA_ASSERT(!log_sum_exp || log_sum_exp.shape == (Shape{qkv.shape[0], shape.num_heads}));
  if (qkv.shape[0] == 0) return;
  if (tma_attention_forward_can(context, qkv, starts, shape, dropout)) {
    return tma_attention_forward(context, qkv, starts, shape, o, log_sum_exp);
  }
  if (wgmma_attention_can(context, qkv, shape)) {
    return wgmma_attention_forward(context, qkv, starts, shape, dropout, o, log_sum_exp);
  }
  if (mma_attention_can(context, qkv, shape)) {
    return mma_attention_forward(context, qkv, starts, shape, dropout, o, log_sum_exp);
  }
  if (tiled_attention_can(context, qkv, shape)) {
    return tiled_attention_forward(context, qkv, starts, shape, dropout, o, log_sum_exp);
  }
  plain_attention_forward(context, qkv, starts, shape, dropout, o, log_sum_exp);
}

void attention_backward(const Context& context, View qkv, View o, View log_sum_exp, View d_o, View starts,
                        const AttentionShape& shape, const Dropout& dropout, View d_qkv, View workspace) {
  check_shapes(qkv, shape, dropout);
  TESSERA_ASSERT(o.shape == (Shape{qkv.shape[0], shape.num_heads * shape.head_dim}) && d_o.shape == o.shape);
  TESSERA_ASSERT(workspace.num_elems() >= attention_workspace_elems(qkv.dtype, shape, qkv.shape[0]));
  TESSERA_ASSERT(d_qkv.shape == qkv.shape && log_sum_exp.shape == (Shape{qkv.shape[0], shape.num_heads}));
  if (qkv.shape[0] == 0) return;
  if (tma_attention_backward_can(context, qkv, starts, shape, dropout)) {
    return tma_attention_backward(context, qkv, o, log_sum_exp, d_o, starts, shape, d_qkv, workspace);
  }
  if (wgmma_attention_can(context, qkv, shape)) {
    return wgmma_attention_backward(context, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv);
  }
  if (mma_attention_can(context, qkv, shape)) {
    return mma_attention_backward(context, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv);
  }
  if (tiled_attention_can(context, qkv, shape)) {
    return tiled_attention_backward(context, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv);
  }
  plain_attention_backward(context, qkv, o, log_sum_exp, d_o, starts, shape, dropout, d_qkv);
}

}  // namespace tessera::cuda
