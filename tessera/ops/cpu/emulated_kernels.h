// 16-bit arithmetic on kernels that compute only in f32 and f64. It is correct but slow.
#pragma once

#include <memory>

#include "tessera/ops/kernels.h"

namespace tessera {

// Adds bf16 and f16 to the types that `wide` supports. `wide` holds kernels of `device`. 16-bit inputs are widened to
// f32 copies, `wide` computes on the copies, and each result is rounded once. The copies are in scratch of the
// device under Category::workspace. This scratch grows to the needs of the largest call (Kernels::scratch_bytes). Calls
// without 16-bit views go directly to `wide`. The following calls do so even with 16-bit views, because `wide` accepts
// 16-bit views in them: moving and converting elements, random numbers, sums of squares, and AdamW. The device must
// outlive the kernels.
std::unique_ptr<Kernels> make_emulated_kernels(Device& device, std::unique_ptr<Kernels> wide);

}  // namespace tessera
