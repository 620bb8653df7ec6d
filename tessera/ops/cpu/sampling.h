// Draws one token from each row of logits. Contract: Kernels::sample_rows().
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void sample_rows(Team& team, View logits, View draws, const Sampling& sampling, View ids);

}  // namespace tessera::cpu
