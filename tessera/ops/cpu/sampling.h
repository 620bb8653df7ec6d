// Draws tokens from rows of logits.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void sample_rows(Team& team, View logits, View draws, const Sampling& sampling, View ids);

}  // namespace tessera::cpu
