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

// The memory of the machine, or the limit of the control group if that is lower.
std::optional<int64_t> usable_memory_bytes();

// The number of threads to compute with: `setting`, unless it is 0. Then 0 if OMP_NUM_THREADS is set, because
// ThreadPool reads it. Otherwise the allowed cores or the quota of the control group, divided among `num_processes`.
int threads_to_use(int64_t setting, int num_processes = 1);

}  // namespace tessera
