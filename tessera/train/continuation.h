// Which settings may differ between a checkpoint's run and a run that resumes from the checkpoint.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/data/batches.h"
#include "tessera/optim/schedule.h"
#include "tessera/settings/setting.h"

namespace tessera {

// A key of the fingerprint whose value differs between the checkpoint's run and the resumed run.
struct Change {
  std::string key;
  std::string then, now;  // the values as text; `then` is "nothing" if the key was missing; both empty for lists
  Resume may_change;

  std::string shown() const;  // "lr = 0.01, and this run has 0.02"; "other windows" for a list
};

// The key of the fingerprint for how micro-batches by tokens are made, if the samples are shuffled. Older versions took
// the samples in order, and did not write the key.
inline constexpr const char* kPackingKey = "micro-batches";
inline constexpr const char* kBestFit = "packed by best fit";

// The keys of `now` that have another value in `then`, or that `then` lacks. Keys that only `then` has do not count. A
// key that an older version did not write does not count if `now` has the value that the older version always used: the
// default.
std::vector<Change> changes_between(const Record& then, const Record& now);
// If `in_a_new_folder` is false, returns the changes that forbid a continuation in the checkpoint's folder. If it is
// true, returns the changes that forbid a new run in another folder that starts from the checkpoint.
std::vector<Change> forbidden_among(const std::vector<Change>& changes, bool in_a_new_folder);
// The end of a sentence whose subject is the checkpoint: "was made with lr = 0.01, and this run has 0.02; with …".
// Lists the first three changes, and gives only the number of the remaining changes.
std::string listed(const std::vector<Change>& changes);
// What to do if only the program has changed, and not the settings. Empty if settings have changed.
std::string remedy_for_older_program(const std::vector<Change>& forbidden, const std::string& checkpoint);

// The number of steps of a run: `max_steps` or, if `max_steps` is 0, the steps of `epochs` epochs.
int64_t total_steps(int64_t max_steps, double epochs, const EpochSteps& steps);
// The learning-rate schedule of a run of `num_steps` steps.
ScheduleOptions schedule_options(const Settings& settings, int64_t num_steps);
// The bounds of the learning rate.
RateBounds rate_bounds(const Settings& settings);
// The message of a run that continues after `step` with another number of steps. It describes the effect on the
// learning rate. `num_updates`: the updates so far; the schedule counts updates, not steps.
std::string note_of_length(const Settings& settings, int64_t steps_then, int64_t steps_now, int64_t step,
                           int64_t num_updates);

}  // namespace tessera
