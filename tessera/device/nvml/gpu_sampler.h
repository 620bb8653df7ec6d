// Samples the use of a GPU over a period and returns the mean and the peak of each value.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/device/device.h"
#include "tessera/device/nvml/nvml.h"

namespace tessera {

// Mean and peak of one sampled value. A sample without this value does not count.
struct Statistic {
  double sum = 0, peak = 0;
  int64_t count = 0;

  void add(const std::optional<double>& value) {
    if (!value) return;
    peak = count == 0 ? *value : std::max(peak, *value);
    sum += *value;
    ++count;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

struct GpuUsage {
  Statistic memory_bytes, process_memory_bytes, utilization_percent, power_w, sm_clock_mhz;

  void add(const GpuSample& sample);
};

// Takes samples on its own thread, from construction to destruction.
class GpuSampler {
 public:
  static constexpr std::chrono::milliseconds kInterval{200};  // the driver does not update utilization more often

  GpuSampler(std::unique_ptr<const Nvml> nvml, Nvml::Gpu gpu, std::chrono::milliseconds interval = kInterval);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // Takes one more sample and returns the usage since construction.
  GpuUsage usage();
  // The newest sample, empty before the first one. Does not wait for the driver, in contrast to usage().
  GpuSample latest();

 private:
  const std::unique_ptr<const Nvml> nvml_;
  const Nvml::Gpu gpu_;
  void add(const GpuSample& sample);

  std::mutex mutex_;  // never locked during a call of NVML
  std::condition_variable end_;
  bool ended_ = false;
  GpuUsage usage_;
  GpuSample latest_;
  std::jthread thread_;
};

// Returns a sampler for a CUDA device. Returns null for other devices, and if NVML is missing or does not know the GPU.
std::unique_ptr<GpuSampler> make_gpu_sampler(Device& device);

}  // namespace tessera
