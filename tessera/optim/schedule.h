// Learning-rate schedules, as transformers' get_*_schedule_with_warmup functions, and DeepSpeed's WarmupLR (constant)
// and WarmupDecayLR (linear), whose step here is their last_batch_iteration.
#pragma once

#include <cstdint>

namespace tessera {

enum class Schedule { linear, constant, cosine };
// How the rate rises: s / W, or as DeepSpeed's WarmupLR by default, log(s + 1) / log(max(W, 2)).
enum class Warmup { linear, log };

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  int64_t num_warmup_steps = 0;  // W
  int64_t num_steps = 0;         // T: where linear and cosine reach the lowest rate, and stay
  Warmup warmup = Warmup::linear;
};

// Of the update made after s = `step` earlier ones (0 for the first): 0 stands for the lowest rate, 1 for the highest.
double schedule_factor(const ScheduleOptions& options, int64_t step);
// The learning rate of that update.
double scheduled_rate(const ScheduleOptions& options, double lowest, double highest, int64_t step);

}  // namespace tessera
