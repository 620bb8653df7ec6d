// The output of a training run while it runs: lines for people, metrics.jsonl, and the files of trackers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tessera/device/nvml/gpu_sampler.h"
#include "tessera/log/console.h"
#include "tessera/log/metrics_log.h"
#include "tessera/log/trackers/trackers.h"
#include "tessera/log/trainer_lines.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// The trackers that the settings ask for. Reads the variables of W&B from the environment.
TrackerOptions tracker_options(const ResolvedSettings& resolved);

// Only the first rank has a log and trackers. The other ranks call the same functions, which then do nothing.
class Recorder {
 public:
  Recorder(const Settings& settings, Console& console) : settings_(settings), console_(console) {}

  // Prints a line of results: to standard output or, with --json, to standard error.
  void say(const std::string& line);
  LineStyle line_style() const;

  // From now on, records go to `log`.
  void log_to(MetricsLog log) { log_.emplace(std::move(log)); }
  // The folder of the run was renamed, or was created again.
  void keep_at(const std::filesystem::path& folder);
  // Syncs the log, and returns its size for a checkpoint. 0 without a log.
  int64_t synced_size_bytes() { return log_ ? log_->synced_size_bytes() : 0; }

  // Starts the trackers, if the options ask for any. They read the records of an earlier part of the run from the log,
  // so it must already be cut to the step that training starts from. `runtime_s`: the runtime of this earlier part.
  void start_trackers(TrackerOptions options, double runtime_s);
  void start_trackers_again();  // in the new folder of the run

  // Appends a record to metrics.jsonl, and gives it to the trackers.
  void append(const char* kind, int64_t step, double epoch, const Record& values, const Record& timing,
              double runtime_s);
  // Records the state of this process, and the mean use of its GPU since the previous such record. `sampler` may be
  // null. Does nothing if that record is less than five seconds old.
  void track_system(int64_t step, GpuSampler* sampler);
  void finish_trackers(ExitCode code, const Record& summary, double runtime_s);

 private:
  const Settings& settings_;
  Console& console_;
  std::optional<MetricsLog> log_;
  TrackerOptions tracker_options_;
  double runtime_before_s_ = 0;
  std::unique_ptr<Trackers> trackers_;
  GpuUsage tracked_usage_;              // the GPU's usage when trackers last recorded it
  std::optional<double> tracked_at_s_;  // when trackers recorded tracked_usage_
};

}  // namespace tessera
