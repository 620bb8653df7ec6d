// Kernels of the counting device: they touch no data and count the operations.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_counting_kernels();

}  // namespace tessera
