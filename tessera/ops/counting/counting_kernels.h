// Kernels of the counting device. They access no data. They count the operations of linear layers, and hold as much
// scratch as the kernels of the device that is counted.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_counting_kernels(Device& device);

}  // namespace tessera
