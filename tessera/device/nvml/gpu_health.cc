// This file and nvml.cc declare NVML's functions and types themselves. A build therefore does not need NVIDIA's nvml.h.
#include "tessera/device/nvml/gpu_health.h"

#include <dlfcn.h>

#include <memory>

#include "tessera/base/error.h"
#include "tessera/device/nvml/nvml.h"

namespace tessera {

namespace {

std::string slowdowns(unsigned long long reasons) {
  // The bits of nvmlClocksEventReasons that mean a problem. The remaining bits have usual reasons, for example: the
  // GPU is idle, a power limit applies, or a user has set the clocks.
  static constexpr std::pair<unsigned long long, const char*> kUnusual[] = {
      {0x8, "hardware slowdown"}, {0x20, "heat (driver)"}, {0x40, "heat (hardware)"}, {0x80, "power brake"}};
  std::string text;
  for (const auto& [bit, name] : kUnusual) {
    if (reasons & bit) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

}  // namespace

GpuHealth gpu_health(const std::string& pci_address, const char* library) {
  GpuHealth health;
  try {
    const Nvml nvml(library);
    const Nvml::Gpu gpu = nvml.gpu_at(pci_address);
    const std::unique_ptr<void, int (*)(void*)> handle(dlopen(library, RTLD_NOW | RTLD_LOCAL), dlclose);
    using CountErrors = int (*)(Nvml::Gpu, int, int, unsigned long long*);
    using Reasons = int (*)(Nvml::Gpu, unsigned long long*);
    constexpr int kUncorrected = 1, kVolatile = 0;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
    unsigned long long value = 0;
    const auto errors = reinterpret_cast<CountErrors>(dlsym(handle.get(), "nvmlDeviceGetTotalEccErrors"));
    if (errors && errors(gpu, kUncorrected, kVolatile, &value) == 0) {
      health.uncorrected_errors = static_cast<int64_t>(value);
    }
    const auto reasons = reinterpret_cast<Reasons>(dlsym(handle.get(), "nvmlDeviceGetCurrentClocksThrottleReasons"));
    if (reasons && reasons(gpu, &value) == 0) health.slowed_by = slowdowns(value);
  } catch (const RunError&) {  // no NVML, or NVML does not find this GPU
  }
  return health;
}

}  // namespace tessera
