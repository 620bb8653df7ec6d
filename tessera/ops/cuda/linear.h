// Linear layers: their matrix products, and the steps after a product: bias, activation, dropout and residual. The
// contracts of the first four functions are in ops/kernels.h.
#pragma once

#include "tessera/ops/cuda/products.h"

namespace tessera::cuda {

void linear_forward(const Context& context, Products& products, View x, View weight, View bias,
                    const LinearEpilogue& epilogue, View preactivation, View y);
void linear_backward_input(const Context& context, Products& products, View d_y, View weight,
                           const LinearEpilogue& epilogue, View preactivation, View d_x, View x);
void linear_backward_weight(Products& products, View d_y, View x, bool fresh, View d_weight);
void linear_backward_bias(const Context& context, std::span<const BiasGradient> gradients);

// finish_forward() and finish_backward() apply the steps that the kernel of the product did not apply. `from` is the
// input of these steps, [rows, columns]. `to` may be `from` or the residual. `made_again` may be preactivation or
// empty. An empty bias or residual adds nothing. `mask` stands for the factors of dropout.
//   forward:  to = residual + dropout(activation(from + bias))
//   backward: to = residual + (from ∘ mask ∘ activation'(preactivation));
//             made_again = dropout(activation(preactivation)): the output of the forward pass without its residual
void finish_forward(const Context& context, View from, View bias, const LinearEpilogue& epilogue, View to);
void finish_backward(const Context& context, View from, const LinearEpilogue& epilogue, View preactivation, View to,
                     View made_again);

}  // namespace tessera::cuda
