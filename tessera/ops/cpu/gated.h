// Gated feed-forward layers: h = activation(gate) ∘ up, element by element. The class Kernels (ops/kernels.h) gives the
// shapes of the views.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void gated_forward(Team& team, View gate_up, Activation activation, View h);
void gated_backward(Team& team, View d_h, View gate_up, Activation activation, View d_gate_up, View h);

}  // namespace tessera::cpu
