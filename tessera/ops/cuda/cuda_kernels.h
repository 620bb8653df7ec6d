// The kernels on NVIDIA GPUs.
#pragma once

#include <string>

#include "tessera/ops/kernels.h"

namespace tessera {

// Memory that the kernels hold on the device under Category::workspace, for any model.
inline constexpr int64_t kCudaWorkspaceBytes = int64_t{64} << 20;

// `device` must be a CUDA device and outlive the kernels. Every call puts work on the device's compute stream and
// returns. Calls neither allocate nor wait, so CUDA graphs can capture them. Exception: the first call with a shape
// queries cuBLASLt's algorithms on the host. While set_tuning() is on, it may also measure some of them. With
// allow_tf32, f32 products truncate their factors to tf32's 11 bits. Throws RunError if cuBLASLt is missing or the
// program has no code for this GPU.
std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32 = false);

// The version of the cuBLASLt that the kernels would use, for example "13.1.0". If it cannot be loaded: the reason.
std::string cublas_lt_description();

}  // namespace tessera
