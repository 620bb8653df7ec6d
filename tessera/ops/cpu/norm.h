// Layer norm over the last dimension. The contracts are in ops/kernels.h.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void layer_norm_forward(Team& team, View x, View weight, View bias, double epsilon, View y, View stats);
void layer_norm_backward(Team& team, View d_y, View x, View weight, View bias, View stats, View residual, View d_x,
                         View d_weight, View d_bias, View y);

}  // namespace tessera::cpu
