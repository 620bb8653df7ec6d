#include "tessera/train/recorder.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/base/clock.h"
#include "tessera/base/read_file.h"
#include "tessera/log/progress.h"
#include "tessera/session/evaluation.h"

namespace tessera {

namespace fs = std::filesystem;

TrackerOptions tracker_options(const ResolvedSettings& resolved) {
  const Settings& settings = resolved.settings;
  TrackerOptions options;
  options.tensorboard = settings.tracker.tensorboard;
  options.wandb = settings.tracker.wandb;
  options.output_dir = settings.output_dir;
  options.tracker_dir = settings.tracker_dir;
  if (options.wandb) options.wandb_variables = wandb_variables(environment_of_process());
  const auto config = resolved_config_json(resolved);
  for (const auto& [name, entry] : config.items()) options.config[name] = entry.at("value");
  return options;
}

void Recorder::say(const std::string& line) {
  if (settings_.json)
    console_.note(line);
  else
    console_.print(line);
}

LineStyle Recorder::line_style() const {
  return tessera::line_style(settings_, settings_.json ? console_.err_terminal() : console_.out_terminal());
}

void Recorder::keep_at(const fs::path& folder) {
  if (log_) log_->keep_at((folder / MetricsLog::kFileName).string());
}

void Recorder::start_trackers(TrackerOptions options, double runtime_s) {
  tracker_options_ = std::move(options);
  runtime_before_s_ = runtime_s;
  start_trackers_again();
}

void Recorder::start_trackers_again() {
  if (!log_ || !(tracker_options_.tensorboard || tracker_options_.wandb)) return;
  std::vector<Record> lines;
  std::istringstream text(read_file(log_->path(), {}));
  for (std::string line; std::getline(text, line);) lines.push_back(record_from_json(line, log_->path()));
  WandbVariables& variables = tracker_options_.wandb_variables;
  if (variables.name.empty()) {
    const fs::path folder = fs::absolute(settings_.output_dir).lexically_normal();
    variables.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  trackers_ = std::make_unique<Trackers>(tracker_options_, lines, runtime_before_s_,
                                         [this](const std::string& note) { console_.note(note); });
}

void Recorder::append(const char* kind, int64_t step, double epoch, const Record& values, const Record& timing,
                      double runtime_s) {
  if (!log_) return;
  const Record line = log_->append(kind, step, epoch, values, timing);
  if (trackers_) trackers_->append(line, runtime_s);
}

void Recorder::track_system(int64_t step, GpuSampler* sampler) {
  constexpr double kInterval = 5;  // s
  const double now_s = steady_seconds();
  if (!trackers_ || (tracked_at_s_ && now_s - *tracked_at_s_ < kInterval)) return;
  tracked_at_s_ = now_s;
  Record values = process_values();
  if (sampler) {
    const GpuUsage now = sampler->usage();
    const auto put = [&](const char* key, const Statistic& sum, const Statistic& before) {
      if (sum.count > before.count) {
        values[key] = (sum.sum - before.sum) / static_cast<double>(sum.count - before.count);
      }
    };
    put("gpu.0.memoryAllocatedBytes", now.memory_bytes, tracked_usage_.memory_bytes);
    put("gpu.process.0.memoryAllocatedBytes", now.process_memory_bytes, tracked_usage_.process_memory_bytes);
    put("gpu.0.gpu", now.utilization_percent, tracked_usage_.utilization_percent);
    put("gpu.0.powerWatts", now.power_w, tracked_usage_.power_w);
    put("gpu.0.smClock", now.sm_clock_mhz, tracked_usage_.sm_clock_mhz);
    tracked_usage_ = now;
  }
  trackers_->append_system(values, step);
}

void Recorder::finish_trackers(ExitCode code, const Record& summary, double runtime_s) {
  if (trackers_) trackers_->finish(static_cast<int>(code), summary, runtime_s);
}

}  // namespace tessera
