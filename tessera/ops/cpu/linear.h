// Linear layers, and the operators fused into them (LinearEpilogue). Contracts: ops/kernels.h.
#pragma once

#include "tessera/ops/cpu/team.h"
#include "tessera/ops/kernels.h"

namespace tessera::cpu {

void linear_forward(Team& team, View x, View weight, View bias, const LinearEpilogue& epilogue, View preactivation,
                    View y);
void linear_backward_input(Team& team, View d_y, View weight, const LinearEpilogue& epilogue, View preactivation,
                           View d_x, View x);
void linear_backward_weight(Team& team, View d_y, View x, bool fresh, View d_weight);
void linear_backward_bias(Team& team, std::span<const BiasGradient> gradients);
void dropout_backward(Team& team, View d_y, const Dropout& dropout, View d_x);

}  // namespace tessera::cpu
