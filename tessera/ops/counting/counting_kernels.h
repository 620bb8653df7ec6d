// Kernels of the counting device: they touch no data, count the operations and hold the scratch that real ones would.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_counting_kernels(Device& device);

}  // namespace tessera
