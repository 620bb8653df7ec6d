// The kernels of the CPU: f32 for work, f64 for gradient checks, by the same templates.
#pragma once

#include <memory>

#include "tessera/ops/kernels.h"

namespace tessera {

// Scratch of one thread, held under Category::workspace for as long as the kernels live.
inline constexpr int64_t kCpuScratchBytesPerThread = int64_t{4} << 20;

// `device` must be a CPU device and outlive the kernels. Matrix products run in its threads: the BLAS library is told
// to use one thread a call, for the whole process.
std::unique_ptr<Kernels> make_cpu_kernels(Device& device);

}  // namespace tessera
