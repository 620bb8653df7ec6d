// Starts the runs of a sweep one after another, and reports how each run ended.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/log/console.h"
#include "tessera/sweep/expand.h"

namespace tessera {

// How a run of a sweep ended.
enum class SweepState {
  not_started,
  done_before,  // this sweep found the run already done
  done,
  failed,
  stopped,  // exit code 75, or killed while a signal stopped the sweep. If you repeat the sweep, it resumes the run
  in_use,   // another process works in the run's folder
};
// "not started", "done before", …
const char* name_of(SweepState state);

struct SweepResult {
  SweepState state = SweepState::not_started;
  std::optional<int> exit_code{};
  double seconds = 0;   // how long the run took in this sweep, without starts by earlier sweeps
  std::string error{};  // the last error in the log, or why the run could not start; empty: none
};

// The path of a run's log. The log has the standard output and error of all starts of the run. Each start begins with
// the line "$ tessera …".
std::string log_of(const SweepRun& run);

// What the sweep shows while it runs.
struct SweepProgress {
  size_t num_runs = 0, num_finished = 0, num_failed = 0;
  std::string name{};              // of the current run; empty: none
  double run_s = 0;                // seconds since the start of the current run
  std::optional<double> left_s{};  // estimated seconds until the end of the sweep
};
// "Sweep 3/12 (1 failed), nproc=2 0:12, 4:10 left" in at most `columns` columns.
std::string progress_text(const SweepProgress& progress, int columns);

// Estimates the seconds until the end of the last `num_left` runs. This number includes the current run. `finished_s`:
// the seconds of each finished run. The estimate assumes that each run takes the mean of these times. `run_s`: the
// seconds that the current run has already taken. Returns nothing if no run has finished.
std::optional<double> estimated_left_s(const std::vector<double>& finished_s, size_t num_left, double run_s);

struct SweepEnd {
  std::vector<SweepResult> results;
  int exit_code = 0;
};
// Starts every run that is neither done nor in use, in order, and continues after a failure. If this process gets a
// stop signal, it passes the signal to the current run and starts no further run. Returns one result for each run, and
// the exit code of the sweep:
//   0        all runs are done
//   1        a run failed or is in use, and no signal stopped the sweep
//   75       a signal stopped the sweep; or a run ended with exit code 75, and no run failed or is in use
//   128 + n  a second signal, with number n, ended the current run
SweepEnd run_sweep(const std::vector<SweepRun>& runs, Console& console);

// The results as a table, followed by the errors of the runs that have one.
std::string sweep_report(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results,
                         const Terminal& terminal);
// {"runs": [{"name": …, "output_dir": …, "command": …, "state": …}]}. With results, each run also has "exit_code",
// "seconds", "error" and "log". If `results` is empty, the states come from the folders of the runs.
Record sweep_record(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results);

// The command of a run, for a shell.
std::string command_of(const SweepRun& run);

}  // namespace tessera
