// AdamW on flat arrays. Kernels::adamw() (ops/kernels.h) describes the arguments.
#pragma once

#include "tessera/ops/cpu/team.h"
#include "tessera/ops/kernels.h"

namespace tessera::cpu {

void adamw(Team& team, View parameters, View rest, View gradients, View m, View v, const AdamWStep& step);

}  // namespace tessera::cpu
