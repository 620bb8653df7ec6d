// The parts of make_kernels() (ops/kernels.h), and what counts their memory. This header needs no CUDA.
#pragma once

#include <memory>
#include <string>

#include "tessera/ops/kernels.h"

namespace tessera {

// Bytes that the kernels of a CPU hold per thread, under Category::workspace.
inline constexpr int64_t kCpuScratchBytesPerThread = int64_t{4} << 20;
// Bytes of device memory that the kernels of a GPU hold, for any model, under Category::workspace.
inline constexpr int64_t kCudaWorkspaceBytes = int64_t{64} << 20;

// 16-bit arithmetic on kernels that compute only in f32 and f64. It is correct but slow.
// Adds bf16 and f16 to the types that `wide` supports. `wide` holds kernels of `device`. 16-bit inputs are widened to
// f32 copies, `wide` computes on the copies, and each result is rounded once. The copies are in scratch of the
// device under Category::workspace. This scratch grows to the needs of the largest call (Kernels::scratch_bytes). Calls
// without 16-bit views and 8-bit matrices go directly to `wide`. The following calls do so even with 16-bit views,
// because `wide` accepts 16-bit views in them: moving and converting elements, random numbers, sums of squares, and
// AdamW. The device must outlive the kernels.
std::unique_ptr<Kernels> make_emulated_kernels(Device& device, std::unique_ptr<Kernels> wide);

// Kernels of the counting device. They access no data. They count the operations of linear layers. They book as
// much scratch as the kernels of the device that the counting device stands for.
std::unique_ptr<Kernels> make_counting_kernels(Device& device, bool allow_tf32 = false);

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
