// The loss of the model's head, and argmax over the vocabulary. The contracts are in ops/kernels.h.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void softmax_cross_entropy(Team& team, View logits, View targets, double d_scale, View loss);
void argmax_rows(Team& team, View logits, View ids);

}  // namespace tessera::cpu
