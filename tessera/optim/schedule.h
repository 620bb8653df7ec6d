// Learning-rate schedules. They have the values of transformers' functions get_*_schedule*. `constant` also stands for
// DeepSpeed's WarmupLR, and `linear` for its WarmupDecayLR. The argument `step` is the number that DeepSpeed calls
// last_batch_iteration.
#pragma once

#include <cstdint>

namespace tessera {

enum class Schedule {
  linear,
  constant,
  cosine,
  cosine_with_min_lr,  // `cosine`, but the user must give the lowest rate
  cosine_with_restarts,
  polynomial,
  inverse_sqrt,
  warmup_stable_decay
};
// How the rate rises during a warm-up of W steps. At step s < W, schedule_factor() is s / W (linear) or
// log(s + 1) / log(max(W, 2)) (log). `log` is the default of DeepSpeed's WarmupLR.
enum class Warmup { linear, log };
// How the rate falls in the decay at the end of warmup_stable_decay.
enum class Decay { cosine, linear, one_minus_sqrt };

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  int64_t num_warmup_steps = 0;  // W
  int64_t num_steps = 0;         // T: from this step on, schedules that decay give the lowest rate
  Warmup warmup = Warmup::linear;
  double num_cycles = 0;        // cosine: waves until T; cosine_with_restarts: falls until T; 0: 0.5 and 1
  double power = 1;             // polynomial
  int64_t timescale = 0;        // inverse_sqrt, in steps; 0: W, or 10,000 without a warm-up
  int64_t num_decay_steps = 0;  // warmup_stable_decay
  Decay decay = Decay::cosine;  // warmup_stable_decay
};

// A schedule moves the rate between these bounds.
struct RateBounds {
  double start = 0;  // when the warm-up begins
  double peak = 0;
  double end = 0;  // when the decay ends
};

// Returns where the learning rate lies between the lowest rate (0) and the highest rate (1), for the update that
// follows `step` earlier updates.
double schedule_factor(const ScheduleOptions& options, int64_t step);
// Returns the learning rate for the update that follows `step` earlier updates.
double scheduled_rate(const ScheduleOptions& options, const RateBounds& bounds, int64_t step);
// Whether the rate depends on num_steps.
bool depends_on_length(Schedule kind);

}  // namespace tessera
