// NVIDIA's management library (NVML). The values that nvidia-smi prints come from NVML. NVML is a part of the driver,
// and Tessera opens it at run time. A build does not need NVML, and a run works without it.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tessera {

// Properties of a GPU that do not change.
struct GpuIdentity {
  std::string name;    // "NVIDIA H200"; empty if not reported
  unsigned index = 0;  // nvidia-smi's number of the GPU
};

// The state of a GPU at one moment. A value is nullopt if NVML, the GPU or the container does not report it.
struct GpuSample {
  std::optional<double> memory_bytes;          // in use on the card, by all processes: nvidia-smi's memory.used
  std::optional<double> memory_total_bytes;    // of the card
  std::optional<double> process_memory_bytes;  // of this process, including its CUDA context and code
  // Time with a running kernel, in percent of the driver's last sampling period.
  std::optional<double> utilization_percent;
  std::optional<double> power_w;
  std::optional<double> sm_clock_mhz;
};

class Nvml {
 public:
  // Throws RunError if the library is missing, lacks a required function, or cannot start.
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // "580.159.03"; empty if not reported
  std::string version() const;         // of the library: "13.580.159.03"

  // Finds a GPU by its PCI address, "0000:1b:00.0". A number would not identify the GPU: NVML ignores
  // CUDA_VISIBLE_DEVICES, so its numbers may differ from CUDA's numbers. Throws RunError if NVML finds no GPU at this
  // address.
  using Gpu = void*;
  Gpu gpu_at(const std::string& pci_address) const;
  GpuSample sample(Gpu gpu) const;
  GpuIdentity identity(Gpu gpu) const;

 private:
  struct Functions;
  void* library_;
  std::unique_ptr<const Functions> functions_;
};

}  // namespace tessera
