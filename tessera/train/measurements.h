// What a training run measures of itself: speed, memory, and the use of GPUs.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/clock.h"
#include "tessera/base/record.h"
#include "tessera/device/nvml/gpu_sampler.h"
#include "tessera/engine/engine.h"
#include "tessera/log/progress.h"
#include "tessera/session/session.h"
#include "tessera/train/memory_log.h"
#include "tessera/train/slow_steps.h"
#include "tessera/workshop/callback_figures.h"

namespace tessera {

class Measurements {
 public:
  // Starts the memory log, if the settings ask for one. Collective.
  explicit Measurements(Session& session);

  // Training begins, after `step` steps. Sampling of the GPU starts.
  void begin(int64_t step);
  // A step has ended. `seconds` is empty if its time cannot be compared with other steps.
  void add(int64_t step, const StepResult& result, const std::optional<StepSeconds>& seconds);
  // The speed since the previous log line (SpeedFigures).
  Record speed() { return speed_.log(steady_seconds()); }
  const MeasuredSteps& steps() const { return steps_; }
  // What can make steps slow. `gpu`: the result of gpu_of_all_ranks().
  Surroundings surroundings(const Record& gpu) const;
  // The sampler of this rank's GPU; null on a CPU, and after gpu_of_all_ranks().
  GpuSampler* gpu_sampler() { return gpu_sampler_.get(); }

  // The use of GPUs since training began, including evaluations. Each figure is the maximum over the ranks. Ends the
  // sampling. Collective.
  Record gpu_of_all_ranks();
  // Adds to a summary: the time of steps, the peak of resident memory, the use of GPUs, the figures of callbacks, the
  // memory log (which ends), and the peaks of the ledgers. Collective.
  void add_to(Record& summary, const Record& gpu);

 private:
  Record callbacks_of_all_ranks();
  Record memory_log_of_all_ranks();

  Session& session_;
  std::unique_ptr<MemoryLog> memory_log_;  // begins before data and model are read
  std::unique_ptr<GpuSampler> gpu_sampler_;
  UtilizationFigures utilization_;
  SpeedFigures speed_;
  MeasuredSteps steps_;
};

// The peak bytes of each category of a ledger over all phases, and the peak of their sum.
Record peaks_of(const Ledger& ledger);

}  // namespace tessera
