// Learning-rate schedules. They have the values of transformers' functions get_*_schedule_with_warmup. `constant` also
// stands for DeepSpeed's WarmupLR, and `linear` for its WarmupDecayLR. The argument `step` is the number that DeepSpeed
// calls last_batch_iteration.
#pragma once

#include <cstdint>

namespace tessera {

enum class Schedule { linear, constant, cosine };
// How the rate rises during a warm-up of W steps. At step s < W, schedule_factor() is s / W (linear) or
// log(s + 1) / log(max(W, 2)) (log). `log` is the default of DeepSpeed's WarmupLR.
enum class Warmup { linear, log };

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  int64_t num_warmup_steps = 0;  // W
  int64_t num_steps = 0;         // T: from this step on, `linear` and `cosine` give the lowest rate
  Warmup warmup = Warmup::linear;
};

// Returns where the learning rate lies between the lowest rate (0) and the highest rate (1), for the update that
// follows `step` earlier updates.
double schedule_factor(const ScheduleOptions& options, int64_t step);
// Returns the learning rate for the update that follows `step` earlier updates.
double scheduled_rate(const ScheduleOptions& options, double lowest, double highest, int64_t step);

}  // namespace tessera
