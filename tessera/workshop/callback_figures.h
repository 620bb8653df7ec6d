// The figures that the callbacks of KAUST's FSDP workshop report, under the callbacks' names. MB is 2^20 bytes.
//
//   avg_mem_alloc_MB, avg_mem_reserved_MB, avg_mem_total_MB, avg_gpu_util_%, std_gpu_util_%
//       Means (avg) and standard deviation (std) over ranks and steps. Each rank takes a sample at the end of each
//       optimizer step. alloc and reserved: the memory that the rank holds on its device. total: the memory that all
//       processes use on the rank's GPU.
//   train/steps_per_second, train/samples_per_second
//       The speed between two log lines. The time includes evaluations and checkpoints. With the suffix _mean: the
//       speed from the start of training to the last log line, or to the end of training if steps follow this line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/device/nvml/nvml.h"

namespace tessera {

// Sums the samples, one per rank and step.
class UtilizationFigures {
 public:
  // Call it at the end of a step. `held_bytes`: the bytes that the rank holds on its device now.
  void add(int64_t held_bytes, const GpuSample& sample);
  std::string to_text() const;             // this rank's sums, for add_text() on another rank
  void add_text(const std::string& text);  // adds the sums of another rank
  // Without GPUs, the record has no avg_mem_total_MB and no figures of the utilization.
  Record record() const;

 private:
  struct Sum {
    double value = 0, square = 0;
    double count = 0;
    void add(double x);
    double mean() const { return value / count; }
    double deviation() const;
  };
  Sum held_, total_, utilization_;
};

// The speed between two log lines.
class SpeedFigures {
 public:
  explicit SpeedFigures(double now_s) : before_s_(now_s) {}

  // Call it after each step.
  void add(int64_t num_samples);
  // Call it for each log line, and at the end of training. Returns the figures since the last call that returned
  // figures, or since the start. Returns an empty record if no step or no time has passed since then.
  Record log(double now_s);
  // The mean speed from the start to the last call of log() that returned figures. Returns an empty record if no call
  // has returned figures.
  Record means() const;

 private:
  double before_s_, seconds_ = 0;
  int64_t new_steps_ = 0, new_samples_ = 0, steps_ = 0, samples_ = 0;
};

}  // namespace tessera
