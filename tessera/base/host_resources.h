// The memory and cores that this process may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

// In the file `path` (for example /proc/cpuinfo), finds the first line that starts with `key` and contains a colon.
// Returns the text after the colon, without leading blanks. Returns nullopt if no such line exists.
std::optional<std::string> value_of_key(const std::string& path, const std::string& key);
// The value of `key` ("MemTotal") in /proc/meminfo, in bytes. nullopt if the file or the key is missing.
std::optional<int64_t> meminfo_bytes(const std::string& key);

// For each resource, the lowest of the limits that this process's control group and the groups above it set (cgroups of
// version 1 or 2). nullopt: no group sets a limit.
struct ControlGroupLimits {
  std::optional<int64_t> memory_bytes;
  std::optional<double> cores;
};
// `root`: the root folder of the file system. Tests replace it.
ControlGroupLimits control_group_limits(const std::filesystem::path& root = "/");

// The bytes of memory of the machine, or the limit of the control group if that is lower. nullopt if both are unknown.
std::optional<int64_t> usable_memory_bytes();

// The folder of this user for what Tessera can make again: $XDG_CACHE_HOME/tessera/NAME, or ~/.cache/tessera/NAME.
// Empty if neither variable is set.
std::filesystem::path cache_folder(const char* name);

// Returns the number of threads for a ThreadPool. If `setting` is not 0, returns `setting`. If it is 0 and
// OMP_NUM_THREADS is set, returns 0, because ThreadPool then reads this variable. Otherwise returns the number of cores
// that this process may use, divided by `num_processes` and rounded down, but at least 1. The process may use the cores
// of its affinity mask, but not more than the limit of its control groups, rounded up.
int threads_to_use(int64_t setting, int num_processes = 1);

}  // namespace tessera
