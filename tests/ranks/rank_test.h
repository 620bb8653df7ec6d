// Tests that run as ranks: `mpirun -n N program --world=N [--transport=messages] [--timeout=S]`. A program fails when
// its world is not of the size it was told, when a test is skipped, and when it has none.
#pragma once

#include <gtest/gtest.h>

#include "tessera/comm/world.h"

namespace tessera {

// Of the program's main.
World& test_world();
Transport test_transport();

}  // namespace tessera
