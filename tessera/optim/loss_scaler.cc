#include "tessera/optim/loss_scaler.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"

namespace tessera {

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  TESSERA_ASSERT(options.window >= 1 && options.hysteresis >= 1);
  state_.scale = options.fixed_scale > 0 ? options.fixed_scale : options.initial_scale;
  state_.hysteresis_left = options.hysteresis;
}

Overflow LossScaler::update(bool overflow) {
  if (options_.fixed_scale > 0) return overflow ? Overflow::stuck : Overflow::none;
  return options_.rules == LossScaleRules::grad_scaler ? update_as_grad_scaler(overflow)
                                                       : update_as_deepspeed(overflow);
}

// The rules of torch._amp_update_scale_ with growth factor 2 and backoff factor 0.5.
Overflow LossScaler::update_as_grad_scaler(bool overflow) {
  if (overflow) {
    const bool is_low = state_.scale <= options_.min_scale;  // GradScaler has no minimum: the scale still falls
    state_.scale *= 0.5;
    state_.clean_steps = 0;
    return is_low ? Overflow::stuck : Overflow::searched;
  }
  if (++state_.clean_steps == options_.window) {
    state_.clean_steps = 0;
    // PyTorch keeps the scale in fp32, and does not double it if the result would be infinite.
    if (state_.scale * 2 <= std::numeric_limits<float>::max()) state_.scale *= 2;
  }
  return Overflow::none;
}

// The rules of deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler.update_scale with scale factor 2. The scale doubles
// after `window` + 1 steps without overflow, and then after every further `window` steps without overflow. The
// hysteresis is restored only when the scale doubles.
Overflow LossScaler::update_as_deepspeed(bool overflow) {
  if (overflow) {
    state_.clean_steps = 0;
    if (options_.hysteresis != 1 && state_.hysteresis_left != 1) {
      --state_.hysteresis_left;
      return Overflow::searched;
    }
    if (state_.scale == options_.min_scale) return Overflow::exhausted;
    state_.scale = std::max(state_.scale / 2, options_.min_scale);
    return Overflow::searched;
  }
  const int64_t stable = state_.clean_steps++;
  if (stable > 0 && stable % options_.window == 0) {
    state_.hysteresis_left = options_.hysteresis;
    state_.scale *= 2;
  }
  return Overflow::none;
}

}  // namespace tessera
