// Logs of memory over time. A log of GPU memory has the CSV format of the first command, and a log of CPU memory has
// the text format of the second command:
//
//   nvidia-smi --query-gpu=timestamp,index,name,memory.used,memory.total --format=csv,nounits
//   psrecord PID --include-children --log FILE
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "tessera/log/memory_statistics.h"

namespace tessera {

inline constexpr const char* kGpuLogHeader = "timestamp, index, name, memory.used [MiB], memory.total [MiB]\n";

struct GpuLogRow {
  std::chrono::system_clock::time_point time;  // written as local time
  unsigned index = 0;
  std::string name;
  int64_t used_mib = 0, total_mib = 0;
};
std::string gpu_log_line(const GpuLogRow& row);

std::string cpu_log_header();
struct CpuLogRow {
  // real_mb: resident memory. MB is 2^20 bytes, as in psrecord.
  double elapsed_s = 0, cpu_percent = 0, real_mb = 0, virtual_mb = 0;
};
std::string cpu_log_line(const CpuLogRow& row);
// Returns `value` as a reader of the log gets it: rounded to three decimals, as cpu_log_line() writes it.
double as_logged(double value);

// The statistics of a log, and the number of its rows that could not be parsed.
struct GpuLogStatistics {
  std::map<int64_t, MemoryStatistics> by_gpu;  // used memory in MiB
  int64_t num_unreadable = 0;
};
GpuLogStatistics read_gpu_log(std::string_view text);  // skips the first line (the header)
struct CpuLogStatistics {
  MemoryStatistics real_mb;
  int64_t num_unreadable = 0;
};
CpuLogStatistics read_cpu_log(std::string_view text);  // skips comments: # and the rest of the line

struct MemoryAnalysis {
  std::string text;    // what `tessera memory` prints about the logs
  bool found = false;  // whether at least one log contains a sample
};
// Reads gpu_memory_log*.csv in the folder and in its subfolder `memory`, and all CSV files in its subfolder
// `gpu_memory`.
MemoryAnalysis analyse_gpu_logs(const std::filesystem::path& folder);
// Reads cpu_memory_log*.txt in the folder and in its subfolders `memory` and `cpu_memory`.
MemoryAnalysis analyse_cpu_logs(const std::filesystem::path& folder);

}  // namespace tessera
