// A library that records when kernels, copies and fills run on the GPU. If the environment variable
// CUDA_INJECTION64_PATH names this library, the CUDA driver loads it into a program that uses CUDA. The library gets
// the times from CUPTI (CUDA's profiling interface). When the program ends, the library writes a file with one line per
// kernel, copy or fill: begin and duration in ns, stream, name. The environment variable KERNEL_TIMES names this file.
// Under Open MPI, the library appends the rank's number to the file's name. kernel_times.py makes a table of such a
// file.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Activity {
  uint64_t begin, end;
  uint32_t stream;
  std::string name;
};

// The list and its lock are never destroyed, because CUPTI delivers the last records while the program ends.
std::vector<Activity>& activities() {
  static auto* const all = new std::vector<Activity>;
  return *all;
}
std::mutex& lock() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

void buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *size = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *max_records = 0;
}

// CUDA 12's types of records. The fields used here have the same offsets in CUDA 13's types.
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;

void buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  const std::lock_guard guard(lock());
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<KernelRecord*>(record);
      activities().push_back({kernel->start, kernel->end, kernel->streamId, kernel->name});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<CopyRecord*>(record);
      const char* name = copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to the GPU"
                         : copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                                             : "copy";
      activities().push_back({copy->start, copy->end, copy->streamId, name});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* set = reinterpret_cast<CUpti_ActivityMemset4*>(record);
      activities().push_back({set->start, set->end, set->streamId, "fill"});
    }
  }
  std::free(buffer);
}

void write() {
  cuptiActivityFlushAll(1);
  const char* const path = std::getenv("KERNEL_TIMES");
  const char* const rank = std::getenv(std::getenv("OMPI_COMM_WORLD_RANK") ? "OMPI_COMM_WORLD_RANK" : "RANK");
  std::FILE* const file = path ? std::fopen((std::string(path) + (rank ? rank : "")).c_str(), "w") : nullptr;
  if (!file) {
    std::fputs("kernel_times: cannot write the file that KERNEL_TIMES names\n", stderr);
    return;
  }
  const std::lock_guard guard(lock());
  std::sort(activities().begin(), activities().end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (const Activity& a : activities()) {
    std::fprintf(file, "%llu %llu %u %s\n", static_cast<unsigned long long>(a.begin),
                 static_cast<unsigned long long>(a.end - a.begin), a.stream, a.name.c_str());
  }
  std::fclose(file);
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed);
  for (const auto kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  std::atexit(write);
  return 1;
}
