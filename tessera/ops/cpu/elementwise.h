// Operations on complete arrays: setting, converting, joining, drawing random numbers, summing. ops/kernels.h has their
// contracts.
#pragma once

#include "tessera/ops/cpu/team.h"

namespace tessera::cpu {

void fill(Team& team, View x, double value);
void join(Team& team, View narrow, View rest, View x);
void convert(Team& team, View from, View to);
void fill_normal(Team& team, View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem);
void fill_uniform(Team& team, View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem);
void add(Team& team, View x, View sum);
void add_sum_of_squares(Team& team, View x, View sum);

}  // namespace tessera::cpu
