// The loss scale of fp16 training. Gradients are computed from the scaled loss, so small gradients do not become zero.
// A step whose gradients overflow is skipped. The class LossScaler only computes the scale: its caller scales the loss,
// detects overflow and skips steps.
#pragma once

#include <cstdint>

namespace tessera {

// The effect of a gradient overflow on the scale. A step without overflow gives `none`.
enum class Overflow {
  none,
  searched,   // the scale falls, or the hysteresis prevents this. The run continues
  stuck,      // the scale is fixed or, under grad_scaler's rules, at or below min_scale. The run continues
  exhausted,  // under DeepSpeed's rules: the scale would fall, but is min_scale. The run must end
};

// How a dynamic scale changes: as in torch.amp.GradScaler, or as in DeepSpeed's DynamicLossScaler with
// consecutive_hysteresis off.
enum class LossScaleRules { grad_scaler, deepspeed };

struct LossScaleOptions {
  LossScaleRules rules = LossScaleRules::grad_scaler;
  double fixed_scale = 0;  // > 0: the scale, which then never changes. 0: the scale is dynamic
  double initial_scale = 65536;
  // The scale doubles after this many steps without overflow. Under DeepSpeed's rules, the first doubling of the run,
  // and the first after each overflow, need one step more.
  int64_t window = 2000;
  // DeepSpeed's rules: at the start of the run and after each doubling, the next hysteresis − 1 overflows do not change
  // the scale. Further overflows halve it.
  int64_t hysteresis = 1;
  // grad_scaler: an overflow at this scale or below it gives `stuck`, and the scale still falls. deepspeed: the scale
  // never falls below min_scale. An overflow at min_scale gives `exhausted`, unless the hysteresis prevents this.
  double min_scale = 1;
};

// The state of a LossScaler, which checkpoints contain.
struct LossScaleState {
  double scale = 1;
  // Steps without overflow since the scale last changed (grad_scaler) or since the last overflow (deepspeed).
  int64_t clean_steps = 0;
  // DeepSpeed's rules: which overflow halves the scale. 1: the next overflow. 2: the second overflow from now.
  int64_t hysteresis_left = 1;
  bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  // The factor that multiplies the loss of the next step. The caller must divide the step's gradients by it.
  double scale() const { return state_.scale; }
  // The caller must call update() after every step. `overflow`: whether a gradient on any rank is NaN or infinite. If
  // `overflow` is true, the caller must skip the step.
  Overflow update(bool overflow);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }

 private:
  Overflow update_as_grad_scaler(bool overflow);
  Overflow update_as_deepspeed(bool overflow);

  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace tessera
