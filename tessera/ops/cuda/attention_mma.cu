#include "tessera/ops/cuda/attention.h"

#include "tessera/ops/cuda/attention_backward.cuh"
#include "tessera/ops/cuda/attention_forward.cuh"
#include "tessera/ops/cuda/mma.cuh"

namespace tessera::cuda {
namespace {

// Calls body(products, drops). The type of `products` contains the element type and the narrowest tile width that holds
// a head. The constant `drops` says whether the call has dropout.
template <typename Body>
void with_products(DType dtype, int64_t head_dim, const Dropout& dropout, Body&& body) {
  const auto with_dropout = [&](auto products) {
    if (dropout.rate > 0) return body(products, std::true_type());
    body(products, std::false_type());
  };
  const auto with_head = [&](auto zero) {
    using T = decltype(zero);
    if (head_dim <= 64) return with_dropout(MmaProducts<T, 64>());
    if (head_dim <= 96) return with_dropout(MmaProducts<T, 96>());
    with_dropout(MmaProducts<T, 128>());
  };
  if (dtype == DType::f16) return with_head(Half{});
  with_head(Bf16{});
}

}  // namespace

bool mma_attention_can(const Context& context, View qkv, const AttentionShape& shape) {
  return context.code_major >= 8 && size_of(qkv.dtype) == 2 && shape.head_dim % 8 == 0 && shape.head_dim <= 128;
}

void mma_attention_forward(const Context& context, const Kernels::AttentionForward& call) {
  with_products(call.qkv.dtype, call.shape.head_dim, call.dropout, [&](auto products, auto drops) {
    using Products = decltype(products);
    constexpr int kBlocks = Products::Rows::kColumns <= 64 ? 3 : 2;
    launch_attention_forward<Products, drops, kBlocks>(context, call);
  });
}

void mma_attention_backward(const Context& context, const Kernels::AttentionBackward& call) {
  with_products(call.qkv.dtype, call.shape.head_dim, call.dropout, [&](auto products, auto drops) {
    launch_attention_backward<decltype(products), drops, 2, 2>(context, call);
  });
}

}  // namespace tessera::cuda
