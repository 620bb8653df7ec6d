// The kernels of the CPU. The same templates make the f32 kernels for training and the f64 kernels for gradient checks.
// emulated_kernels.h uses the f32 kernels for 16-bit types.
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
