// Learning-rate schedules, as transformers' get_*_schedule_with_warmup functions.
#pragma once

#include <cstdint>

namespace tessera {

enum class Schedule { linear, constant, cosine };

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  int64_t num_warmup_steps = 0;  // W: the factor rises as s / W
  int64_t num_steps = 0;         // T: where linear and cosine reach 0
};

// The factor on the learning rate of the update made after `step` earlier ones (0 for the first).
double schedule_factor(const ScheduleOptions& options, int64_t step);

}  // namespace tessera
