// Tests that run as ranks: `mpirun -n N program --world=N [--transport=direct|messages] [--device=cuda]`, or with
// tests/torchrun.py instead of mpirun. A program fails if a test fails or is skipped, if no test passes, or if its
// world does not have N ranks.
#pragma once

#include <gtest/gtest.h>

#include "tessera/comm/world.h"

namespace tessera {

// rank_main.cc sets the values that these functions return, before the tests run.
World& test_world();
Transport test_transport();
// Whether the ranks compute on GPUs (--device=cuda).
bool test_uses_cuda();

}  // namespace tessera
