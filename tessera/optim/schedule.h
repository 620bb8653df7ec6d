// Learning-rate schedules: transformers' get_*_schedule_with_warmup functions, and DeepSpeed's WarmupLR (constant) and
// WarmupDecayLR (linear). The step here is DeepSpeed's last_batch_iteration.
#pragma once

#include <cstdint>

namespace tessera {

enum class Schedule { linear, constant, cosine };
// How the rate rises at step s < W: s / W, or log(s + 1) / log(max(W, 2)). The latter is the default of DeepSpeed's
// WarmupLR.
enum class Warmup { linear, log };

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  int64_t num_warmup_steps = 0;  // W
  int64_t num_steps = 0;         // T: the step at which linear and cosine reach the lowest rate and stay there
  Warmup warmup = Warmup::linear;
};

// The rate's position between the lowest (0) and the highest (1), for the update that follows `step` earlier updates.
double schedule_factor(const ScheduleOptions& options, int64_t step);
// The learning rate of that update.
double scheduled_rate(const ScheduleOptions& options, double lowest, double highest, int64_t step);

}  // namespace tessera
