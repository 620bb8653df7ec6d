// Gated feed-forward layers (see ops/kernels.h).
#pragma once

#include "tessera/ops/cuda/context.h"
#include "tessera/ops/kernels.h"

namespace tessera::cuda {

void gated_forward(const Context& context, View gate_up, Activation activation, View h);
void gated_backward(const Context& context, View d_h, View gate_up, Activation activation, View d_gate_up, View h);

}  // namespace tessera::cuda
