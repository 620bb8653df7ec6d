// The steps of a linear layer that the kernel of its product did not apply: bias, activation, dropout and residual.
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

struct UnfusedSteps {
  ByName by_name{};
  View from;       // the input of the steps, [rows, columns]
  View bias = {};  // [columns] or empty; finish_forward() only
  LinearEpilogue epilogue = {};
  View preactivation = {};  // [rows, columns] or empty; finish_backward() only
  View to;                  // [rows, columns]; may be `from` or the residual
  View made_again = {};     // [rows, columns], may be preactivation; or empty; finish_backward() only
};

// to = residual + dropout(activation(from + bias))
void finish_forward(const Context& context, const UnfusedSteps& call);
// to = residual + (from ∘ mask ∘ activation'(preactivation)). `mask` stands for the factors of dropout.
// made_again = dropout(activation(preactivation)): the output of the forward pass without its residual
void finish_backward(const Context& context, const UnfusedSteps& call);

}  // namespace tessera::cuda
