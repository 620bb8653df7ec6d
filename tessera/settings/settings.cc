#include "tessera/settings/settings.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/counted.h"

namespace tessera {

int64_t StepCount::of(int64_t all_steps) const {
  return fraction > 0 ? static_cast<int64_t>(std::ceil(static_cast<double>(all_steps) * fraction)) : steps;
}

std::string Settings::batch_words() const {
  return batch_tokens > 0
             ? fmt::format("up to {} x {} tokens", batch_tokens, grad_accum)
             : fmt::format("{} x {} {}", batch_size, grad_accum, noun_for(batch_size * grad_accum, "sample"));
}

LossScaleOptions Settings::loss_scaling() const {
  const bool is_deepspeed = loss_scale_rules == LossScaleRules::deepspeed;
  const auto or_default = [](int64_t value, int64_t preset) { return value > 0 ? value : preset; };
  return {.rules = loss_scale_rules,
          .fixed_scale = loss_scale,
          .initial_scale = std::ldexp(1.0, static_cast<int>(initial_scale_power)),
          .window = or_default(loss_scale_window, is_deepspeed ? 1000 : 2000),
          .hysteresis = or_default(loss_scale_hysteresis, is_deepspeed ? 2 : 1),
          .min_scale = min_loss_scale};
}

}  // namespace tessera
