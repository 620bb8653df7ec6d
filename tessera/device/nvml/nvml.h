// NVIDIA's management library (NVML), which knows what nvidia-smi shows. It comes with the driver and is opened at run
// time: nothing of it is needed to build, and a machine without it is no error of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tessera {

// A GPU at one moment. What the library, the GPU or the container does not tell is absent.
struct GpuSample {
  std::optional<double> memory_bytes;          // in use on the card, by all processes: nvidia-smi's memory.used
  std::optional<double> process_memory_bytes;  // of this process, its context and code included
  std::optional<double> utilization_percent;   // of the last moments' time, some kernel ran in so much
  std::optional<double> power_w;
  std::optional<double> sm_clock_mhz;
};

class Nvml {
 public:
  // RunError: there is no such library, it lacks what nothing works without, or it cannot start.
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // "580.159.03"; empty where it is not told
  std::string version() const;         // of the library: "13.580.159.03"

  // A GPU by its PCI address, "0000:1b:00.0": numbers are the driver's, which CUDA_VISIBLE_DEVICES does not change.
  // RunError: there is none.
  using Gpu = void*;
  Gpu gpu_at(const std::string& pci_address) const;
  GpuSample sample(Gpu gpu) const;

 private:
  struct Functions;
  void* library_;
  std::unique_ptr<const Functions> functions_;
};

}  // namespace tessera
