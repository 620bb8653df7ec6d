#include "tessera/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double schedule_factor(const ScheduleOptions& options, int64_t step) {
  const auto s = static_cast<double>(step), W = static_cast<double>(options.num_warmup_steps),
             T = static_cast<double>(options.num_steps);
  if (step < options.num_warmup_steps) {
    return options.warmup == Warmup::log ? std::log(s + 1) / std::log(std::max(2.0, W)) : s / W;
  }
  switch (options.kind) {
    case Schedule::constant:
      return 1;
    case Schedule::linear:
      return std::max(0.0, (T - s) / std::max(1.0, T - W));
    case Schedule::cosine: {
      const double progress = std::min(1.0, (s - W) / std::max(1.0, T - W));
      return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    }
  }
  return 1;
}

double scheduled_rate(const ScheduleOptions& options, double lowest, double highest, int64_t step) {
  return lowest + (highest - lowest) * schedule_factor(options, step);
}

}  // namespace tessera
