// Which settings may differ between a checkpoint's run and one that resumes from it.
#pragma once

#include <string>
#include <vector>

#include "tessera/optim/schedule.h"
#include "tessera/report/record.h"
#include "tessera/settings/settings.h"

namespace tessera {

enum class MayChange {
  never,            // else the model, the samples, their order or what is measured would differ
  in_a_new_folder,  // a new run may begin from the checkpoint with another value
  in_any_case,      // how long the run is
};

// A key of the fingerprint (train_state.h) that differs.
struct Change {
  std::string key;
  std::string then, now;  // as JSON; "nothing" where there was no such key
  MayChange may_change;

  std::string shown() const;  // "lr = 0.01, and this run has 0.02"
};

// What differs of `now` from `then`. Keys that only `then` has do not count.
std::vector<Change> changes_between(const Record& then, const Record& now);
// Those of `changes` that forbid a continuation in the same folder, or in a new one.
std::vector<Change> forbidden_among(const std::vector<Change>& changes, bool in_a_new_folder);
// "was made with lr = 0.01, and this run has 0.02; with seed = 42, …": the first three.
std::string listed(const std::vector<Change>& changes);

// The length of a run. As the Trainer: a fraction of an epoch is rounded up to a whole step.
int64_t total_steps(int64_t max_steps, double epochs, int64_t steps_per_epoch);
// The schedule of a run of so many steps.
ScheduleOptions schedule_options(const Settings& settings, int64_t num_steps);
// What a run says that continues one of another length after `step`: what becomes of the schedule.
std::string note_of_length(const Settings& settings, int64_t steps_then, int64_t steps_now, int64_t step,
                           int64_t num_updates);

}  // namespace tessera
