// The memory and cores that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

// The value of the first line "KEY...: VALUE" in a file such as /proc/cpuinfo. nullopt if there is none.
std::optional<std::string> value_of_key(const std::string& path, const std::string& key);
// A value of /proc/meminfo in bytes. nullopt if there is none.
std::optional<int64_t> meminfo_bytes(const std::string& key);

// The lowest limits of this process's control group and of the groups above it (cgroups of version 1 or 2). nullopt: no
// limit.
struct ControlGroupLimits {
  std::optional<int64_t> memory_bytes;
  std::optional<double> cores;
};
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// The bytes of memory of the machine, or the limit of the control group if that is lower. nullopt if both are unknown.
std::optional<int64_t> usable_memory_bytes();

// The number of threads for a ThreadPool: `setting`, unless it is 0. If it is 0 and OMP_NUM_THREADS is set, returns 0,
// because ThreadPool reads this variable. Otherwise returns the allowed cores, limited by the quota of the control
// group and divided among `num_processes`, but at least 1.
int threads_to_use(int64_t setting, int num_processes = 1);

}  // namespace tessera
