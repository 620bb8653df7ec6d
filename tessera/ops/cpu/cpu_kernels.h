// The kernels of the CPU: f32 for training, f64 for gradient checks, from the same templates.
#pragma once

#include <memory>

#include "tessera/ops/kernels.h"

namespace tessera {

// Bytes of scratch per thread. The kernels hold this scratch under Category::workspace for their lifetime.
inline constexpr int64_t kCpuScratchBytesPerThread = int64_t{4} << 20;

// `device` must be a CPU device and outlive the kernels. The kernels run in the device's threads. Sets the BLAS library
// to one thread per call, for the complete process.
std::unique_ptr<Kernels> make_cpu_kernels(Device& device);

}  // namespace tessera
