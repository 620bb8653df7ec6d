// Starts the runs of a sweep one after the other, and reports how each ended.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/report/console.h"
#include "tessera/report/record.h"
#include "tessera/sweep/expand.h"

namespace tessera {

// How a run of a sweep ended.
enum class SweepState {
  not_started,
  done_before,  // was finished when its turn came
  done,
  failed,
  stopped,  // ended with 75: the same sweep again resumes it
  in_use,   // another process works in its folder
};
// "not started", "done before", …
const char* name_of(SweepState state);

struct SweepResult {
  SweepState state = SweepState::not_started;
  std::optional<int> exit_code{};
  double seconds = 0;   // of this start
  std::string error{};  // the last error line of the log; of failed runs
};

// The log of a run: standard output and error of all its starts. Each start begins with the line "$ tessera …".
std::string log_of(const SweepRun& run);

// What the sweep shows while it runs.
struct SweepProgress {
  size_t num_runs = 0, num_finished = 0, num_failed = 0;
  std::string name{};              // of the current run; empty: none
  double run_s = 0;                // since its start
  std::optional<double> left_s{};  // of the complete sweep
};
// "Sweep 3/12 (1 failed), nproc=2 0:12, 4:10 left" in at most `columns` columns.
std::string progress_text(const SweepProgress& progress, int columns);

// The time that `num_left` runs take, including the current one: the mean of finished runs, minus the time that the
// current run has already taken. Nothing without a finished run.
std::optional<double> estimated_left_s(const std::vector<double>& finished_s, size_t num_left, double run_s);

// Starts every run that is not done, in order, and continues after a failure. A stop signal goes to the current run,
// and no other run starts. Returns one result for each run, and the exit code of the sweep:
//   0        all runs are done
//   1        a run failed or is in use
//   75       a signal stopped the sweep, or only stopped runs are left
//   128 + n  a second signal n ended the current run
struct SweepEnd {
  std::vector<SweepResult> results;
  int exit_code = 0;
};
SweepEnd run_sweep(const std::vector<SweepRun>& runs, Console& console);

// The results as a table, followed by the errors of failed runs.
std::string sweep_report(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results,
                         const Terminal& terminal);
// {"runs": [{"name": …, "output_dir": …, "command": …, "state": …}]}. Without results, the states come from the folders
// of the runs.
Record sweep_record(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results);

// The command of a run, for a shell.
std::string command_of(const SweepRun& run);

}  // namespace tessera
