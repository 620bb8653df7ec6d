// Logs of memory over time. They have the formats that these two commands write (CSV and text).
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

#include "tessera/report/memory_statistics.h"

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
  double elapsed_s = 0, cpu_percent = 0, real_mb = 0, virtual_mb = 0;  // MB: 2^20 bytes, as in psrecord
};
std::string cpu_log_line(const CpuLogRow& row);
// The value that a reader of the log gets: `value` rounded to the three decimals of cpu_log_line().
double as_logged(double value);

// Statistics of a log's text, and the number of rows that could not be read.
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

// What `tessera memory` prints.
struct MemoryAnalysis {
  std::string text;
  bool found = false;  // whether at least one log contains a sample
};
// Reads gpu_memory_log*.csv in the folder and in its subfolder `memory`, and all CSV files in its subfolder
// `gpu_memory`.
MemoryAnalysis analyse_gpu_logs(const std::filesystem::path& folder);
// Reads cpu_memory_log*.txt in the folder and in its subfolders `memory` and `cpu_memory`.
MemoryAnalysis analyse_cpu_logs(const std::filesystem::path& folder);

}  // namespace tessera
