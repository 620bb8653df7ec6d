#include "tessera/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/log/output_file.h"
#include "tessera/log/progress.h"
#include "tessera/log/table.h"
#include "tessera/store/file.h"
#include "tessera/store/output_lock.h"
#include "tessera/sweep/child_process.h"
#include "tessera/sweep/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kSaved = static_cast<int>(ExitCode::kSavedAfterSignal);

// Appends the command of a run to its log, before the run starts. Returns the log's size in bytes, including the line
// of the command.
uint64_t begin_log(const SweepRun& run) {
  create_folders(run.output_dir);
  OutputFile log(log_of(run), 0);
  log.append("$ " + command_of(run) + "\n");
  return static_cast<uint64_t>(log.size_bytes());
}

bool is_finished(SweepState state) {
  return state != SweepState::not_started && state != SweepState::stopped;
}

// Starts the runs in order. Shows a status line on a terminal. Otherwise, prints one line for each run.
class Sweeper {
 public:
  Sweeper(const std::vector<SweepRun>& runs, Console& console)
      : runs_(runs), console_(console), results_(runs.size()) {}

  SweepEnd all() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      stops_.take(signals_);
      if (stops_.any()) break;
      one(i);
      say(i);
    }
    console_.clear_status();
    look_at_used_runs();
    return {results_, exit_code()};
  }

 private:
  void one(size_t i) {
    const SweepRun& run = runs_[i];
    SweepResult& result = results_[i];
    const RunState before = state_of_run(run.output_dir, run.resolved);
    if (before != RunState::open) {
      result.state = before == RunState::done ? SweepState::done_before : SweepState::in_use;
      return;
    }
    const double begin_s = steady_seconds();
    try {
      const uint64_t log_begin = begin_log(run);
      result.exit_code =
          run_child(run.arguments, log_of(run), signals_, stops_, [&] { show(i, steady_seconds() - begin_s); });
      if (*result.exit_code != 0) result.error = last_error_in(log_of(run), log_begin);
    } catch (const Error& error) {  // for example because the folder of this run cannot be created
      result.exit_code = static_cast<int>(error.code());
      result.error = error.what();
    }
    result.seconds = steady_seconds() - begin_s;
    result.state = state_after(result);
    if (result.state == SweepState::done) durations_.push_back(result.seconds);
  }

  // Returns the state that follows from the exit code. A stop signal kills a run that has not installed its handlers
  // yet, and a second signal ends any run. In both cases, the run counts as stopped, not as failed. Clears the error of
  // a stopped run.
  SweepState state_after(SweepResult& result) const {
    const int code = *result.exit_code;
    if (code == 0) return SweepState::done;
    const bool is_killed = stops_.any() && code > 128;
    if (code == kSaved || is_killed) {
      result.error.clear();
      return SweepState::stopped;
    }
    const bool in_use =
        code == static_cast<int>(ExitCode::kUsage) && result.error.find(OutputLock::kInUse) != std::string::npos;
    return in_use ? SweepState::in_use : SweepState::failed;
  }

  SweepProgress progress(size_t next) const {
    SweepProgress now{.num_runs = runs_.size()};
    for (const SweepResult& result : results_) {
      now.num_finished += is_finished(result.state);
      now.num_failed += result.state == SweepState::failed;
    }
    now.left_s = estimated_left_s(durations_, runs_.size() - next, 0);
    return now;
  }

  void show(size_t i, double run_s) {
    if (!console_.err_terminal().interactive) return;
    SweepProgress now = progress(i);
    now.name = runs_[i].name;
    now.run_s = run_s;
    now.left_s = estimated_left_s(durations_, runs_.size() - i, run_s);
    console_.show_status(progress_text(now, console_.err_columns() - 1));
  }

  // Prints a line about a run that has ended. On a terminal, only problems get a line, because the status line shows
  // the progress.
  void say(size_t i) {
    const SweepResult& result = results_[i];
    const bool is_well = result.state == SweepState::done || result.state == SweepState::done_before;
    if (is_well && console_.err_terminal().interactive) return;
    std::string line = fmt::format("{}/{} {}: {}", i + 1, runs_.size(), runs_[i].name, name_of(result.state));
    if (result.state == SweepState::failed) line += fmt::format(" with exit code {}", *result.exit_code);
    if (result.exit_code) line += ", in " + format_clock(result.seconds);
    const auto left_s = progress(i + 1).left_s;
    if (left_s && i + 1 < runs_.size() && !stops_.any()) line += fmt::format(", {} left", format_clock(*left_s));
    console_.note(line);
  }

  // Updates the results of runs that another process used before and that are done now.
  void look_at_used_runs() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (results_[i].state != SweepState::in_use) continue;
      if (state_of_run(runs_[i].output_dir, runs_[i].resolved) == RunState::done) {
        results_[i] = {.state = SweepState::done_before};
      }
    }
  }

  int exit_code() const {
    const auto has = [&](SweepState state) {
      return std::ranges::any_of(results_, [&](const SweepResult& result) { return result.state == state; });
    };
    const bool are_open = has(SweepState::not_started) || has(SweepState::stopped);
    if (are_open && stops_.received.size() > 1) return 128 + stops_.received.back();
    if (are_open && stops_.any()) return kSaved;
    if (has(SweepState::failed) || has(SweepState::in_use)) return static_cast<int>(ExitCode::kRunFailed);
    return are_open ? kSaved : static_cast<int>(ExitCode::kDone);
  }

  const std::vector<SweepRun>& runs_;
  Console& console_;
  std::vector<SweepResult> results_;
  std::vector<double> durations_;  // of the runs that this sweep finished, in seconds
  ForwardedSignals signals_;
  StopRequests stops_;
};

}  // namespace

const char* name_of(SweepState state) {
  switch (state) {
    case SweepState::not_started:
      return "not started";
    case SweepState::done_before:
      return "done before";
    case SweepState::done:
      return "done";
    case SweepState::failed:
      return "failed";
    case SweepState::stopped:
      return "stopped";
    case SweepState::in_use:
      return "in use";
  }
  return "";
}

std::string log_of(const SweepRun& run) {
  return (fs::path(run.output_dir) / "train.log").string();
}

std::string command_of(const SweepRun& run) {
  std::string command = "tessera";
  for (const std::string& argument : run.arguments) command += " " + quoted_for_shell(argument);
  return command;
}

std::string progress_text(const SweepProgress& progress, int columns) {
  std::string text = fmt::format("Sweep {}/{}", progress.num_finished, progress.num_runs);
  if (progress.num_failed > 0) text += fmt::format(" ({} failed)", progress.num_failed);
  std::string end = progress.name.empty() ? "" : " " + format_clock(progress.run_s);
  if (progress.left_s) end += fmt::format(", {} left", format_clock(*progress.left_s));
  if (!progress.name.empty()) {
    const int space = columns - display_width(text + ", " + end);
    text += ", " + std::string(cut_to_width(progress.name, std::max(0, space)));
  }
  return std::string(cut_to_width(text + end, columns));
}

std::optional<double> estimated_left_s(const std::vector<double>& finished_s, size_t num_left, double run_s) {
  if (finished_s.empty()) return std::nullopt;
  const auto count = static_cast<double>(finished_s.size());
  const double mean_s = std::accumulate(finished_s.begin(), finished_s.end(), 0.0) / count;
  if (num_left == 0) return 0;
  // If the current run already takes longer than the mean, its remaining time counts as 0, never as negative.
  return mean_s * static_cast<double>(num_left - 1) + std::max(0.0, mean_s - run_s);
}

SweepEnd run_sweep(const std::vector<SweepRun>& runs, Console& console) {
  return Sweeper(runs, console).all();
}

std::string sweep_report(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results,
                         const Terminal& terminal) {
  Table table({{"run"}, {"state"}, {"exit code", Align::kRight}, {"time", Align::kRight}, {"log"}});
  std::string errors;
  for (size_t i = 0; i < runs.size(); ++i) {
    const SweepResult& result = results[i];
    table.row({runs[i].name, name_of(result.state), result.exit_code ? std::to_string(*result.exit_code) : "",
               result.exit_code ? format_clock(result.seconds) : "",
               result.state == SweepState::not_started ? "" : log_of(runs[i])});
    if (!result.error.empty()) errors += fmt::format("\n{}: {}", runs[i].name, result.error);
  }
  return table.remove_empty_columns().render(terminal) + errors;
}

Record sweep_record(const std::vector<SweepRun>& runs, const std::vector<SweepResult>& results) {
  Record list = Record::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    Record record{{"name", runs[i].name}, {"output_dir", runs[i].output_dir}, {"command", command_of(runs[i])}};
    if (i < results.size()) {
      const SweepResult& result = results[i];
      record["state"] = name_of(result.state);
      record["exit_code"] = result.exit_code ? Record(*result.exit_code) : Record();
      record["seconds"] = result.exit_code ? Record(result.seconds) : Record();
      record["error"] = result.error.empty() ? Record() : Record(result.error);
      record["log"] = log_of(runs[i]);
    } else {
      const RunState state = state_of_run(runs[i].output_dir, runs[i].resolved);
      record["state"] = name_of(state == RunState::done     ? SweepState::done_before
                                : state == RunState::in_use ? SweepState::in_use
                                                            : SweepState::not_started);
    }
    list.push_back(record);
  }
  return {{"runs", list}};
}

}  // namespace tessera
