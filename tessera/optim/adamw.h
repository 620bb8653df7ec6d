// AdamW's settings and the coefficients of one update (Loshchilov & Hutter 2019; as torch.optim.AdamW).
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

// The coefficients of update `step` (from 1). The update multiplies gradients by `gradient_scale`. The first
// `num_decayed` elements of the shard decay, the others do not.
AdamWStep adamw_step(const AdamWOptions& options, int64_t step, double learning_rate, double gradient_scale,
                     int64_t num_decayed);

// The factor that reduces a gradient of this norm to at most max_norm (torch.nn.utils.clip_grad_norm_). 1 if max_norm
// is 0 (no clipping). NaN if the norm is NaN.
double clip_factor(double norm, double max_norm);

// Whether an update may use gradients of this norm. Loss and norm must be finite, and the square of every clipped
// gradient must be finite in f32, the type of the moments. Otherwise parameters or moments could become NaN or
// infinite.
bool may_update(double loss, double norm, double max_norm);

}  // namespace tessera
