// The implementation of Kernels (ops/kernels.h) on NVIDIA GPUs.
#pragma once

#include <string>

#include "tessera/ops/kernels.h"

namespace tessera {

// Bytes of device memory that one object of make_cuda_kernels() allocates, for any model. Booked under
// Category::workspace.
inline constexpr int64_t kCudaWorkspaceBytes = int64_t{64} << 20;

// `device` must be a CUDA device and outlive the returned object. Each method of the object puts work on the device's
// compute stream and returns. It neither allocates device memory nor waits for the GPU, so CUDA graphs can capture it.
// Exception: while set_tuning() is on, a product of a linear layer may measure algorithms of cuBLASLt and wait for the
// GPU, in at most one call for each shape. It measures nothing during a capture. The first call with a new shape
// queries cuBLASLt's algorithms on the host. With allow_tf32, products of f32 factors use only the first 11 significant
// bits of each factor (tf32). Throws RunError if cuBLASLt is missing or the program has no code for this GPU.
std::unique_ptr<Kernels> make_cuda_kernels(Device& device, bool allow_tf32 = false);

// The version of the cuBLASLt that the kernels would use, for example "13.1.0". If cuBLASLt cannot be loaded, returns
// the reason.
std::string cublas_lt_description();

}  // namespace tessera
