// The scale of the loss in fp16 training: gradients are computed of the scaled loss, so that small ones do not vanish,
// and a step whose gradients overflow is skipped. Pure logic: the caller scales, looks for overflow and skips.
#pragma once

#include <cstdint>

namespace tessera {

// What an overflow of the gradients means for the scale. A step without one is `none`.
enum class Overflow {
  none,
  searched,   // the scale is on its way down: it falls, or the overflow uses up hysteresis
  stuck,      // the scale is fixed, or at most min_scale, where gradients overflow however small it is
  exhausted,  // the same under DeepSpeed's rules, which end the run
};

// How a dynamic scale moves: torch.amp.GradScaler, or DeepSpeed's DynamicLossScaler (consecutive_hysteresis off).
enum class LossScaleRules { grad_scaler, deepspeed };

struct LossScaleOptions {
  LossScaleRules rules = LossScaleRules::grad_scaler;
  double fixed_scale = 0;  // > 0: never moves
  double initial_scale = 65536;
  int64_t window = 2000;   // steps without overflow that double the scale
  int64_t hysteresis = 1;  // deepspeed: the overflow that halves the scale; those before only count
  double min_scale = 1;    // an overflow at this scale is no search; deepspeed: it ends the run
};

// All that a checkpoint has to keep.
struct LossScaleState {
  double scale = 1;
  int64_t clean_steps = 0;  // without overflow: grad_scaler since the last change, deepspeed since the last overflow
  int64_t hysteresis_left = 1;  // deepspeed
  bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  // The factor on the loss of the next step; gradients are divided by it.
  double scale() const { return state_.scale; }
  // After every step, with whether any gradient was not finite on any rank; such a step is skipped.
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
