// AdamW's settings and the numbers of one update (Loshchilov & Hutter 2019, as torch.optim.AdamW).
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

// The update number `step` (from 1) with gradients multiplied by `gradient_scale`; num_decayed is the shard's.
AdamWStep adamw_step(const AdamWOptions& options, int64_t step, double learning_rate, double gradient_scale,
                     int64_t num_decayed);

// The factor that brings a gradient of this norm to at most max_norm (torch.nn.utils.clip_grad_norm_); 1 when max_norm
// is 0, which means no clipping. NaN for a norm that is NaN.
double clip_factor(double norm, double max_norm);

// Whether an update may read gradients of this norm: loss and norm are finite, and so is the square of every clipped
// gradient in f32, the type of the moments. Otherwise parameters or moments could become NaN or infinite.
bool may_update(double loss, double norm, double max_norm);

}  // namespace tessera
