// The trackers of a training run.
#include <filesystem>
#include <sstream>

#include "tessera/base/read_file.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;

// Makes the trackers. They read the records of an earlier part of the run from metrics.jsonl, so metrics.jsonl must
// already be cut to the step that training starts from.
void Trainer::start_trackers() {
  if (!metrics_ || !(tracker_options_.tensorboard || tracker_options_.wandb)) return;
  std::vector<Record> lines;
  std::istringstream text(read_file(metrics_->path(), {}));
  for (std::string line; std::getline(text, line);) lines.push_back(record_from_json(line, metrics_->path()));
  tracker_options_.config["num_parameters"] = session_.engine().model().num_parameters();
  tracker_options_.config["world_size"] = session_.worker().num_ranks();
  WandbVariables& variables = tracker_options_.wandb_variables;
  if (variables.name.empty()) {
    const fs::path folder = fs::absolute(settings_.output_dir).lexically_normal();
    variables.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  trackers_ = std::make_unique<Trackers>(tracker_options_, lines, runtime_before_s_,
                                         [this](const std::string& note) { console_.note(note); });
}

// Records the state of this process, and the mean use of the first rank's GPU since the previous such record. Does
// nothing if that record is less than `kInterval` old.
void Trainer::track_system() {
  constexpr double kInterval = 5;  // s
  const double now_s = steady_seconds();
  if (!trackers_ || (tracked_at_s_ && now_s - *tracked_at_s_ < kInterval)) return;
  tracked_at_s_ = now_s;
  Record values = process_values();
  if (gpu_sampler_) {
    const GpuUsage now = gpu_sampler_->usage();
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
  trackers_->append_system(values, state_.step);
}

}  // namespace tessera
