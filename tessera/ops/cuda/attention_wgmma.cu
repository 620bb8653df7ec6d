#include "tessera/ops/cuda/attention.h"

#include "tessera/ops/cuda/attention_backward.cuh"
#include "tessera/ops/cuda/attention_forward.cuh"
#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda {
namespace {

// Calls body(products, drops). `products` is a WgmmaProducts of the element type `dtype`. `drops` is std::true_type if
// the rate of `dropout` is above 0, otherwise std::false_type.
template <typename Body>
void with_products(DType dtype, const Dropout& dropout, Body&& body) {
  const auto with_dropout = [&](auto products) {
    if (dropout.rate > 0) return body(products, std::true_type());
    body(products, std::false_type());
  };
  if (dtype == DType::f16) return with_dropout(WgmmaProducts<Half>());
  with_dropout(WgmmaProducts<Bf16>());
}

}  // namespace

bool wgmma_attention_can(const Context& context, View qkv, const AttentionShape& shape) {
  return context.has_wgmma && size_of(qkv.dtype) == 2 && shape.head_dim % 8 == 0 && shape.head_dim <= 64;
}

void wgmma_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  with_products(call.qkv.dtype, call.dropout, [&](auto products, auto drops) {
    launch_attention_forward<decltype(products), drops, drops ? 3 : 4>(context, call);
  });
}

void wgmma_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  with_products(call.qkv.dtype, call.dropout, [&](auto products, auto drops) {
    launch_attention_backward<decltype(products), drops, drops ? 2 : 3, 2>(context, call);
  });
}

}  // namespace tessera::cuda
