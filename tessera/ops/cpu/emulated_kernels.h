// 16-bit arithmetic where kernels know f32 and f64 alone: correct, and slow.
#pragma once

#include <memory>

#include "tessera/ops/kernels.h"

namespace tessera {

// Adds bf16 and f16 to the types of `wide`, the kernels of the device: 16-bit inputs are widened to f32, `wide` works
// on those, and each result is rounded once. The copies lie in scratch of the device under Category::workspace, which
// grows to what the largest call takes (Kernels::scratch_bytes). Calls without 16-bit views are those of `wide`, and so
// are those that only move elements, draw them, sum their squares or read them as gradients. The device must outlive
// the kernels.
std::unique_ptr<Kernels> make_emulated_kernels(Device& device, std::unique_ptr<Kernels> wide);

}  // namespace tessera
