// 16-bit arithmetic on kernels that support only f32 and f64. It is correct but slow.
#pragma once

#include <memory>

#include "tessera/ops/kernels.h"

namespace tessera {

// Adds bf16 and f16 to the types of `wide`, the kernels of the device. 16-bit inputs are widened to f32, `wide`
// computes on these, and each result is rounded once. The copies are in scratch of the device under
// Category::workspace; it grows to the needs of the largest call (Kernels::scratch_bytes). `wide` handles directly all
// calls without 16-bit views, and all calls that only move elements, draw them, sum their squares or read them as
// gradients. The device must outlive the kernels.
std::unique_ptr<Kernels> make_emulated_kernels(Device& device, std::unique_ptr<Kernels> wide);

}  // namespace tessera
