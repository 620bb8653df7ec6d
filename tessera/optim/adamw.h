// AdamW's settings and the coefficients of one update (Loshchilov & Hutter 2019; the formula of torch.optim.AdamW).
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

// What AdamW keeps for each parameter.
// fp32: two moments and an exact master parameter in f32, or in f64 for a computation in f64.
// bf16: two moments in bf16, and no master: AdamW updates the bf16 parameter itself. It rounds all three stochastically
// (ops/stochastic_rounding.h). Only for a computation in bf16.
// q8: the exact master parameter in f32, and two moments in 8 bits (base/quantized_moments.h). Not for a computation in
// f64.
enum class OptimizerStates { fp32, bf16, q8 };

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

// Returns the coefficients of update number `step`, counted from 1. The update multiplies gradients by
// `gradient_scale`. Weight decay applies only to the first `num_decayed` elements of the shard.
AdamWStep adamw_step(const AdamWOptions& options, int64_t step, double learning_rate, double gradient_scale,
                     int64_t num_decayed);

// Returns the factor that reduces the norm of the gradients from `norm` to at most max_norm, as
// torch.nn.utils.clip_grad_norm_ does. The factor is 1 if max_norm is 0 (no clipping), and NaN if `norm` is NaN.
double clip_factor(double norm, double max_norm);

// Returns whether an update may use gradients whose norm is `norm`. max_norm is the same as for clip_factor(). Loss and
// norm must be finite, and the square of every clipped gradient must be finite in f32, because AdamW computes in f32.
// Otherwise parameters or moments could become NaN or infinite.
bool may_update(double loss, double norm, double max_norm);

}  // namespace tessera
