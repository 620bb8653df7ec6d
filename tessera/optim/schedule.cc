#include "tessera/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera {

namespace {

// A wave of the cosine from 1 down to 0 and, with more than half a cycle, up again.
double wave(double num_cycles, double progress) {
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * num_cycles * 2 * progress)));
}

// The position in the decay at the end of warmup_stable_decay. `step` is after the warm-up.
double stable_then_decay(const ScheduleOptions& options, int64_t step) {
  const int64_t begin = options.num_steps - options.num_decay_steps;
  if (step < begin) return 1;
  if (step >= options.num_steps) return 0;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(options.num_decay_steps);
  switch (options.decay) {
    case Decay::cosine:
      return wave(options.num_cycles > 0 ? options.num_cycles : 0.5, progress);
    case Decay::linear:
      return 1 - progress;
    case Decay::one_minus_sqrt:
      return 1 - std::sqrt(progress);
  }
  return 1;
}

}  // namespace

double schedule_factor(const ScheduleOptions& options, int64_t step) {
  const auto s = static_cast<double>(step), W = static_cast<double>(options.num_warmup_steps),
             T = static_cast<double>(options.num_steps);
  if (step < options.num_warmup_steps) {
    return options.warmup == Warmup::log ? std::log(s + 1) / std::log(std::max(2.0, W)) : s / W;
  }
  const double progress = std::min(1.0, (s - W) / std::max(1.0, T - W));
  switch (options.kind) {
    case Schedule::constant:
      return 1;
    case Schedule::linear:
      return std::max(0.0, (T - s) / std::max(1.0, T - W));
    case Schedule::cosine:
    case Schedule::cosine_with_min_lr:
      return wave(options.num_cycles > 0 ? options.num_cycles : 0.5, progress);
    case Schedule::cosine_with_restarts: {
      const double cycles = options.num_cycles > 0 ? options.num_cycles : 1;
      return progress >= 1 ? 0 : wave(0.5, std::fmod(cycles * progress, 1.0));
    }
    case Schedule::polynomial:
      return std::pow(1 - progress, options.power);
    case Schedule::inverse_sqrt: {
      const double timescale = options.timescale > 0 ? static_cast<double>(options.timescale) : W > 0 ? W : 10'000;
      return 1 / std::sqrt((s + (timescale - W)) / timescale);
    }
    case Schedule::warmup_stable_decay:
      return stable_then_decay(options, step);
  }
  return 1;
}

double scheduled_rate(const ScheduleOptions& options, const RateBounds& bounds, int64_t step) {
  const double lowest = step < options.num_warmup_steps ? bounds.start : bounds.end;
  return lowest + (bounds.peak - lowest) * schedule_factor(options, step);
}

bool depends_on_length(Schedule kind) {
  return kind != Schedule::constant && kind != Schedule::inverse_sqrt;
}

}  // namespace tessera
