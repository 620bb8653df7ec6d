// The kernels on NVIDIA GPUs.
#pragma once

#include <string>

#include "tessera/ops/kernels.h"

namespace tessera {

// What the kernels hold of the device under Category::workspace, whatever the model.
inline constexpr int64_t kCudaWorkspaceBytes = int64_t{64} << 20;

// `device` must be a CUDA device and outlive them. Every call puts work on its compute stream and returns; nothing is
// allocated and nothing waited for, so that calls can be captured in a CUDA graph (the first call with a shape asks
// cuBLASLt for its algorithm, on the host, and measures a few while products are measured). With allow_tf32 products of
// f32 round their factors to tf32's 11 bits. Throws RunError where cuBLASLt is missing or the program holds no code for
// this GPU.
std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32 = false);

// The version of the cuBLASLt that would be used, "13.1.0", or why there is none.
std::string cublas_lt_description();

}  // namespace tessera
