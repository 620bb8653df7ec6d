// Kernels of the counting device. They access no data. They count the operations and hold as much scratch as the real
// kernels.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_counting_kernels(Device& device);

}  // namespace tessera
