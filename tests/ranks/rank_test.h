// Tests that run as ranks: `mpirun -n N program --world=N [--transport=messages] [--device=cuda]`. A program fails if
// its world does not have N ranks, if a test is skipped, or if no test runs.
#pragma once

#include <gtest/gtest.h>

#include "tessera/comm/world.h"

namespace tessera {

// Set by main() in rank_main.cc.
World& test_world();
Transport test_transport();
// --device=cuda: the ranks compute on GPUs.
bool test_uses_cuda();

}  // namespace tessera
