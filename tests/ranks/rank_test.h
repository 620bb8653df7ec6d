// Tests that run as ranks: `mpirun -n N program --world=N [--transport=messages] [--device=cuda]`. A program fails when
// its world is not of the size it was told, when a test is skipped, and when it has none.
#pragma once

#include <gtest/gtest.h>

#include "tessera/comm/world.h"

namespace tessera {

// Of the program's main.
World& test_world();
Transport test_transport();
// --device=cuda: the ranks compute on GPUs.
bool test_uses_cuda();

}  // namespace tessera
