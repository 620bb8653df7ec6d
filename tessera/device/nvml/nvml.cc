// Opens NVML at run time, so the build needs no nvml.h. The declarations below repeat the types of this header (NVML
// API reference, release 450 and later).
#include "tessera/device/nvml/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Result = int;  // nvmlReturn_t
constexpr Result kSuccess = 0;

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct MemoryV2 {  // nvmlMemory_v2_t; `used` excludes the memory that the driver reserves, as in nvidia-smi
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {  // nvmlProcessInfo_t of the functions whose names end in _v2 or _v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {  // nvmlUtilization_t
  unsigned gpu_percent, memory_percent;
};
constexpr int kClockSm = 1;  // NVML_CLOCK_SM
constexpr unsigned long long kNotAvailable = ~0ULL;

}  // namespace

struct Nvml::Functions {
  Result (*init)();
  Result (*shutdown)();
  const char* (*error_text)(Result);
  Result (*gpu_at)(const char*, Gpu*);
  // Each of the following pointers is null if the library lacks the function.
  Result (*driver_version)(char*, unsigned);
  Result (*version)(char*, unsigned);
  Result (*name)(Gpu, char*, unsigned);
  Result (*index)(Gpu, unsigned*);
  Result (*memory)(Gpu, Memory*);
  Result (*memory_v2)(Gpu, MemoryV2*);
  Result (*processes)(Gpu, unsigned*, Process*);
  Result (*utilization)(Gpu, Utilization*);
  Result (*power_mw)(Gpu, unsigned*);
  Result (*clock_mhz)(Gpu, int, unsigned*);
};

Nvml::Nvml(const char* library) : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  const char* remedy = "Install NVIDIA's driver, which contains this library";
  if (!library_) throw RunError("NVML", fmt::format("cannot be opened: {}", dlerror()), remedy);
  const auto fail = [&](const std::string& what) {
    dlclose(library_);
    throw RunError(library, what, remedy);
  };
  Functions f{};
  const auto find = [&]<typename Function>(Function& function, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!function) function = reinterpret_cast<Function>(dlsym(library_, name));
    }
  };
  find(f.init, {"nvmlInit_v2"});
  find(f.shutdown, {"nvmlShutdown"});
  find(f.error_text, {"nvmlErrorString"});
  find(f.gpu_at, {"nvmlDeviceGetHandleByPciBusId_v2"});
  find(f.driver_version, {"nvmlSystemGetDriverVersion"});
  find(f.version, {"nvmlSystemGetNVMLVersion"});
  find(f.name, {"nvmlDeviceGetName"});
  find(f.index, {"nvmlDeviceGetIndex"});
  find(f.memory, {"nvmlDeviceGetMemoryInfo"});
  find(f.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  find(f.processes, {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  find(f.utilization, {"nvmlDeviceGetUtilizationRates"});
  find(f.power_mw, {"nvmlDeviceGetPowerUsage"});
  find(f.clock_mhz, {"nvmlDeviceGetClockInfo"});
  if (!f.init || !f.shutdown || !f.error_text || !f.gpu_at) fail("lacks functions that every driver since 2020 has");
  if (const Result result = f.init(); result != kSuccess) {
    fail(fmt::format("cannot start: {}", f.error_text(result)));
  }
  functions_ = std::make_unique<const Functions>(f);
}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(library_);
}

namespace {

std::string text_of(Result (*function)(char*, unsigned)) {
  std::array<char, 96> text{};
  if (!function || function(text.data(), text.size() - 1) != kSuccess) return "";
  return text.data();
}

}  // namespace

std::string Nvml::driver_version() const {
  return text_of(functions_->driver_version);
}

std::string Nvml::version() const {
  return text_of(functions_->version);
}

Nvml::Gpu Nvml::gpu_at(const std::string& pci_address) const {
  Gpu gpu = nullptr;
  const Result result = functions_->gpu_at(pci_address.c_str(), &gpu);
  if (result != kSuccess) {
    throw RunError("NVML", fmt::format("finds no GPU at {}: {}", pci_address, functions_->error_text(result)));
  }
  return gpu;
}

GpuIdentity Nvml::identity(Gpu gpu) const {
  GpuIdentity identity;
  std::array<char, 96> name{};
  if (functions_->name && functions_->name(gpu, name.data(), name.size() - 1) == kSuccess) identity.name = name.data();
  if (functions_->index) functions_->index(gpu, &identity.index);
  return identity;
}

GpuSample Nvml::sample(Gpu gpu) const {
  const Functions& f = *functions_;
  GpuSample sample;
  MemoryV2 memory_v2{.version = sizeof(MemoryV2) | 2u << 24, .total = 0, .reserved = 0, .free = 0, .used = 0};
  Memory memory{};
  if (f.memory_v2 && f.memory_v2(gpu, &memory_v2) == kSuccess) {
    sample.memory_bytes = static_cast<double>(memory_v2.used);
    sample.memory_total_bytes = static_cast<double>(memory_v2.total);
  } else if (f.memory && f.memory(gpu, &memory) == kSuccess) {
    sample.memory_bytes = static_cast<double>(memory.used);
    sample.memory_total_bytes = static_cast<double>(memory.total);
  }
  std::array<Process, 128> processes;
  unsigned count = processes.size();
  if (f.processes && f.processes(gpu, &count, processes.data()) == kSuccess) {
    for (unsigned i = 0; i < count; ++i) {
      const bool is_this = processes[i].pid == static_cast<unsigned>(getpid());
      if (is_this && processes[i].used_bytes != kNotAvailable) {
        sample.process_memory_bytes = static_cast<double>(processes[i].used_bytes);
      }
    }
  }
  Utilization utilization{};
  if (f.utilization && f.utilization(gpu, &utilization) == kSuccess) {
    sample.utilization_percent = utilization.gpu_percent;
  }
  unsigned value = 0;
  if (f.power_mw && f.power_mw(gpu, &value) == kSuccess) sample.power_w = value / 1000.0;
  if (f.clock_mhz && f.clock_mhz(gpu, kClockSm, &value) == kSuccess) sample.sm_clock_mhz = value;
  return sample;
}

}  // namespace tessera
