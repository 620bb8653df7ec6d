// Kernels of the counting device. They access no data. They count the operations of linear layers. They book as
// much scratch as the kernels of the device that the counting device stands for.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

std::unique_ptr<Kernels> make_counting_kernels(Device& device);

}  // namespace tessera
