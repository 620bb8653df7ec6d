// Compares the measured time of a run's steps with the planned time, and finds the likely cause of slow steps.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "tessera/base/record.h"
#include "tessera/engine/step_time.h"

namespace tessera {

// The time of a step on this rank. It includes the wait for the samples, and no log, evaluation or save.
struct StepSeconds {
  double step_s = 0, data_s = 0;        // data_s: until the samples of the step are there
  std::optional<PartSeconds> part_s{};  // empty: not measured
};

// The steps of a run, since it started, in their median. The first steps do not count, because they also allocate
// memory, choose kernels and fill caches.
class MeasuredSteps {
 public:
  void add(const StepSeconds& step);
  // A step that cannot be compared, such as a step during which a checkpoint is written.
  void skip() { ++num_seen_; }

  int64_t count() const { return static_cast<int64_t>(steps_.size()); }
  // The median of each time on its own. Only if count() is not 0.
  StepSeconds median() const;
  // The object `measured` of summary.json.
  Record record() const;

 private:
  static constexpr int64_t kWarmUp = 3;
  static constexpr size_t kMost = 1000;  // the newest ones

  int64_t num_seen_ = 0;
  std::deque<StepSeconds> steps_;
};

// What can make steps slower than planned.
struct Surroundings {
  double load = 0;                     // processes that run or want to run on this machine
  int own_threads = 0, num_cores = 0;  // of the run's ranks on this machine; of the machine
  std::string clocks_reduced_by{};     // problems that reduce the clocks of the GPU (GpuHealth); empty: none is known
  double clock_mhz = 0, peak_clock_mhz = 0;  // of the GPU, mean and highest; 0: not known
  int64_t gpu_bytes_of_others = 0;           // memory of the GPU that other programs use
  bool on_gpu = false;
};

// Whether enough steps are measured, and their median is so much longer than planned that users should know.
bool are_slow(const StepTime& planned, const MeasuredSteps& measured);
// The warning about slow steps, with the likely cause. If none is evident, it names the part of the step that takes the
// most time more than planned.
std::string warning_of_slow_steps(const StepTime& planned, const StepSeconds& measured, const Surroundings& around);

}  // namespace tessera
