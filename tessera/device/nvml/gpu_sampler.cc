#include "tessera/device/nvml/gpu_sampler.h"

#include "tessera/base/error.h"
#include "tessera/base/start_thread.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

void GpuUsage::add(const GpuSample& sample) {
  memory_bytes.add(sample.memory_bytes);
  process_memory_bytes.add(sample.process_memory_bytes);
  utilization_percent.add(sample.utilization_percent);
  power_w.add(sample.power_w);
  sm_clock_mhz.add(sample.sm_clock_mhz);
}

GpuSampler::GpuSampler(std::unique_ptr<const Nvml> nvml, Nvml::Gpu gpu, std::chrono::milliseconds interval)
    : nvml_(std::move(nvml)), gpu_(gpu), thread_(start_thread("sampling the GPU", [this, interval] {
        for (bool ended = false; !ended;) {
          add(nvml_->sample(gpu_));
          std::unique_lock lock(mutex_);
          ended = end_.wait_for(lock, interval, [this] { return ended_; });
        }
      })) {}

GpuSampler::~GpuSampler() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  thread_.join();
}

void GpuSampler::add(const GpuSample& sample) {
  const std::lock_guard lock(mutex_);
  usage_.add(sample);
  latest_ = sample;
}

GpuUsage GpuSampler::usage() {
  add(nvml_->sample(gpu_));
  const std::lock_guard lock(mutex_);
  return usage_;
}

GpuSample GpuSampler::latest() {
  const std::lock_guard lock(mutex_);
  return latest_;
}

std::unique_ptr<GpuSampler> make_gpu_sampler(Device& device) {
  if (device.kind() != DeviceKind::cuda) return nullptr;
  try {
    auto nvml = std::make_unique<Nvml>();
    const Nvml::Gpu gpu = nvml->gpu_at(cuda_pci_address_of(device));
    return std::make_unique<GpuSampler>(std::move(nvml), gpu);
  } catch (const RunError&) {  // the run continues without samples; `tessera doctor` reports what is missing
    return nullptr;
  }
}

}  // namespace tessera
