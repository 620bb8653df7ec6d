// The memory and cores that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

// The value of the first line "KEY...: VALUE" in a file such as /proc/cpuinfo, or nothing.
std::optional<std::string> value_of_key(const std::string& path, const std::string& key);
// A line of /proc/meminfo in bytes, or nothing.
std::optional<int64_t> meminfo_bytes(const std::string& key);

// The limits of the control groups (cgroups of version 1 or 2) of this process: its own and those above it.
struct ControlGroupLimits {
  std::optional<int64_t> memory_bytes;
  std::optional<double> cores;
};
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// The memory of the machine, or the limit of the control group where it is lower.
std::optional<int64_t> usable_memory_bytes();

// Threads to compute with: `setting`; where it is 0, OMP_NUM_THREADS; else all allowed cores or the quota of the control
// group, divided among `num_processes`. Returns 0 for OMP_NUM_THREADS, as ThreadPool takes it.
int threads_to_use(int64_t setting, int num_processes = 1);

}  // namespace tessera
