// Reads, writes and adds rows of a matrix by index. ops/kernels.h describes these functions.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void embedding_backward(Team& team, View ids, View d_y, View d_weight);
void gather_rows(Team& team, View x, View rows, View y);
void scatter_rows(Team& team, View x, View rows, View y);

}  // namespace tessera::cpu
