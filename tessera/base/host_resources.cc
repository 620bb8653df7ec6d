#include "tessera/base/host_resources.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace tessera {
namespace {

// The first line of a file. nullopt if the file is missing or empty.
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The folders of this process's control groups: its own group and all groups above it. For cgroups of version 1, only
// the groups of `controller`. A batch system may set its limit on any of these groups. `root` is the root folder of the
// file system.
std::vector<std::filesystem::path> control_groups(const std::filesystem::path& root, const std::string& controller) {
  std::vector<std::filesystem::path> folders;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/slurm/job_1", "0::/slurm/job_1"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = line.starts_with("0::");
    if (!v2 && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::filesystem::path mounted = root / "sys/fs/cgroup" / (v2 ? "" : controller);
    for (std::filesystem::path group = line.substr(second + 1);; group = group.parent_path()) {
      folders.push_back(mounted / group.relative_path());
      if (group == group.root_path() || group.empty()) break;
    }
  }
  return folders;
}

}  // namespace

std::optional<std::string> value_of_key(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

std::optional<int64_t> meminfo_bytes(const std::string& key) {
  const auto text = value_of_key("/proc/meminfo", key + ":");
  if (!text) return std::nullopt;
  return std::atoll(text->c_str()) * 1024;
}

ControlGroupLimits control_group_limits(const std::filesystem::path& root) {
  ControlGroupLimits limits;
  for (const auto& group : control_groups(root, "memory")) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      const int64_t bytes = std::atoll(first_line(group / file).value_or("").c_str());
      if (bytes <= 0 || bytes >= int64_t{1} << 60) continue;  // no limit: "max", or a very large number
      limits.memory_bytes = std::min(limits.memory_bytes.value_or(bytes), bytes);
    }
  }
  for (const auto& group : control_groups(root, "cpu")) {
    const auto quota_of_v1 = [&] {
      return first_line(group / "cpu.cfs_quota_us").value_or("") + " " +
             first_line(group / "cpu.cfs_period_us").value_or("");
    };
    std::istringstream text(first_line(group / "cpu.max").value_or(quota_of_v1()));
    double quota = 0, period = 0;
    if (!(text >> quota >> period) || quota <= 0 || period <= 0) continue;  // no limit: "max" or -1
    limits.cores = std::min(limits.cores.value_or(quota / period), quota / period);
  }
  return limits;
}

std::optional<int64_t> usable_memory_bytes() {
  const std::optional<int64_t> total = meminfo_bytes("MemTotal"), limit = control_group_limits().memory_bytes;
  return total && limit ? std::min(total, limit) : (total ? total : limit);
}

std::filesystem::path cache_folder(const char* name) {
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", "tessera"}, std::pair{"HOME", ".cache/tessera"}}) {
    const char* const value = std::getenv(variable);
    if (value && *value) return std::filesystem::path(value) / below / name;
  }
  return {};
}

int threads_to_use(int64_t setting, int num_processes) {
  if (setting > 0 || std::getenv("OMP_NUM_THREADS")) return static_cast<int>(setting);
  double cores = std::thread::hardware_concurrency();
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (const auto quota = control_group_limits().cores) cores = std::min(cores, std::ceil(*quota));
  return std::max(1, static_cast<int>(cores) / num_processes);
}

}  // namespace tessera
