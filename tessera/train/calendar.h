// When a run does what: its steps and their samples, evaluations, checkpoints, log lines and learning rates. A Calendar
// only calculates. It follows from the settings, the lengths of the samples and the number of ranks.
#pragma once

#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/data/batches.h"
#include "tessera/model/model.h"
#include "tessera/optim/schedule.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The options of batches that follow from the settings, for one rank. `lengths`: [samples] in tokens, must outlive the
// result.
BatchOptions batch_options(const Settings& settings, const std::vector<int64_t>& lengths);

class Calendar {
 public:
  // The steps of this rank of `world`. With `has_evaluation`, the run has evaluation data.
  Calendar(const Settings& settings, const Samples& samples, bool has_evaluation, const Model& model,
           const Communicator& world);
  Calendar(const Calendar&) = delete;

  int64_t num_steps() const { return num_steps_; }
  const EpochSteps& epochs() const { return epochs_; }
  double epochs_after(int64_t step) const { return epochs_.epochs_after(step); }
  BatchPlan batches_of_epoch(int64_t epoch) const { return BatchPlan(batch_options_, epoch); }

  // Whether the run does this after its first `step` steps. Intervals also end with the last step of the run.
  bool evaluates_after(int64_t step) const { return ends(evaluation_, step); }
  bool saves_after(int64_t step) const { return ends(save_, step); }
  bool logs_after(int64_t step) const { return logging_steps_ > 0 && step % logging_steps_ == 0; }

  // For the update that follows `num_updates` earlier updates.
  double learning_rate(int64_t num_updates) const { return scheduled_rate(schedule_, rates_, num_updates); }

 private:
  struct Interval {
    Settings::Interval kind = Settings::Interval::no;
    int64_t steps = 0;  // only for Settings::Interval::steps
  };
  bool ends(const Interval& interval, int64_t step) const;

  const std::vector<int64_t> lengths_;  // [samples] in tokens
  const BatchOptions batch_options_;    // refers to lengths_
  const EpochSteps epochs_;
  const int64_t num_steps_;
  const ScheduleOptions schedule_;
  const RateBounds rates_;
  Interval evaluation_, save_;
  int64_t logging_steps_ = 0;  // steps between two log lines; 0: no log lines
};

}  // namespace tessera
