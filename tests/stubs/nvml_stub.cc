// Replaces NVIDIA's management library: one GPU at 0000:1B:00.0 with values that the tests expect. Macros
// select variants:
//   NVML_STUB_OLD        has only the functions of the oldest drivers
//   NVML_STUB_LOST       the GPU no longer answers: queries of its values return an error
//   NVML_STUB_NO_DRIVER  the library exists, but no driver is loaded
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotFound = 6, kNoDriver = 9;
#ifdef NVML_STUB_LOST
constexpr int kAnswer = 15;  // NVML_ERROR_GPU_IS_LOST
#else
constexpr int kAnswer = kSuccess;
#endif

char the_gpu;

[[maybe_unused]] int put(const char* value, char* text, unsigned size) {
  std::snprintf(text, size, "%s", value);
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
#ifdef NVML_STUB_NO_DRIVER
  return kNoDriver;
#else
  return kSuccess;
#endif
}
int nvmlShutdown() {
  return kSuccess;
}
const char* nvmlErrorString(int result) {
  return result == kNotFound ? "Not Found" : result == kNoDriver ? "Driver Not Loaded" : "GPU is lost";
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** gpu) {
  *gpu = &the_gpu;
  return std::strcmp(address, "0000:1B:00.0") == 0 ? kSuccess : kNotFound;
}

struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {.total = 100, .free = 80, .used = 20};
  return kAnswer;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  if (gpu != &the_gpu) return kNotFound;
  *milliwatts = 612'500;
  return kAnswer;
}

#ifndef NVML_STUB_OLD

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return put("580.1.2", text, size);
}
int nvmlSystemGetNVMLVersion(char* text, unsigned size) {
  return put("13.580.1.2", text, size);
}

int nvmlDeviceGetName(void*, char* text, unsigned size) {
  return put("NVIDIA Stub", text, size);
}
int nvmlDeviceGetIndex(void*, unsigned* index) {
  *index = 3;
  return kAnswer;
}

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void*, MemoryV2* memory) {
  if (memory->version != (40 | 2 << 24)) return kNotFound;
  *memory = {.version = memory->version, .total = 100, .reserved = 5, .free = 80, .used = 15};
  return kAnswer;
}

struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* processes) {
  const unsigned room = *count, pid = static_cast<unsigned>(getpid());
  *count = 2;
  if (room < 2) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  processes[0] = {.pid = pid + 1, .used = 3, .gpu_instance = 0, .compute_instance = 0};
  processes[1] = {.pid = pid, .used = 12, .gpu_instance = 0, .compute_instance = 0};
  return kAnswer;
}

struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void*, Utilization* utilization) {
  *utilization = {.gpu = 93, .memory = 41};
  return kAnswer;
}
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 1 ? 1755 : 3201;
  return kAnswer;
}
int nvmlDeviceGetTotalEccErrors(void*, int type, int counter, unsigned long long* count) {
  *count = type == 1 && counter == 0 ? 3 : 100;  // type 1: uncorrected; counter 0: since the driver was loaded
  return kAnswer;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x1 | 0x4 | 0x40 | 0x80;
  return kAnswer;
}

#endif
}
