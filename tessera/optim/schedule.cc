#include "tessera/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

double schedule_factor(const ScheduleOptions& options, int64_t step) {
  const auto s = static_cast<double>(step), W = static_cast<double>(options.num_warmup_steps),
             T = static_cast<double>(options.num_steps);
  if (step < options.num_warmup_steps) return s / std::max(1.0, W);
  switch (options.kind) {
    case Schedule::constant:
      return 1;
    case Schedule::linear:
      return std::max(0.0, (T - s) / std::max(1.0, T - W));
    case Schedule::cosine: {
      const double progress = (s - W) / std::max(1.0, T - W);
      return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    }
  }
  return 1;
}

}  // namespace tessera
