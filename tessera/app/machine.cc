#include "tessera/app/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cmath>
#include <cstdlib>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "tessera/app/help.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

// The first line of a file, or nothing.
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// What follows "key<spaces>:" in a file such as /proc/cpuinfo.
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

// The folders of this process's control groups, from its own up to the root: of version 2, and of one controller of
// version 1. Batch systems limit a job by a group below the root's.
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

std::string simd_of_machine() {
  std::string names;
#if defined(__x86_64__)
  const auto add = [&](bool has, const char* name) {
    if (has && !names.empty()) names += ' ';
    if (has) names += name;
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512bw"), "avx512bw");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  const std::string flags = value_of_key("/proc/cpuinfo", "flags").value_or("") + " ";
  for (const char* name : {"avx512_bf16", "avx512_fp16", "amx_bf16"}) {
    add(flags.find(" " + std::string(name) + " ") != std::string::npos, name);
  }
#elif defined(__aarch64__)
  names = "neon";
#endif
  return names;
}

const char* simd_of_build() {
#if defined(__AVX512F__)
  return "avx512f";
#elif defined(__AVX2__)
  return "avx2";
#elif defined(__AVX__)
  return "avx";
#elif defined(__aarch64__)
  return "neon";
#else
  return "baseline";
#endif
}

bool hides_value(const std::string& name) {
  return name.find("TOKEN") != std::string::npos || name.find("KEY") != std::string::npos;
}

}  // namespace

ControlGroupLimits control_group_limits(const std::filesystem::path& root) {
  ControlGroupLimits limits;
  for (const auto& group : control_groups(root, "memory")) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      const int64_t bytes = std::atoll(first_line(group / file).value_or("").c_str());
      if (bytes <= 0 || bytes >= int64_t{1} << 60) continue;  // none: "max", a huge number
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
    if (!(text >> quota >> period) || quota <= 0 || period <= 0) continue;  // none: "max", -1
    limits.cores = std::min(limits.cores.value_or(quota / period), quota / period);
  }
  return limits;
}

Json build_facts() {
  return {
      {"version", version_text()}, {"simd", simd_of_build()}, {"back_ends", cuda_info().built ? "cpu cuda" : "cpu"}};
}

Json cpu_facts() {
  Json facts = Json::object();
  if (auto model = value_of_key("/proc/cpuinfo", "model name")) facts["model"] = *model;
  facts["cores_online"] = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) facts["cores_allowed"] = CPU_COUNT(&set);
  if (auto cores = control_group_limits().cores) facts["cores_by_control_group"] = *cores;
  facts["simd"] = simd_of_machine();
  return facts;
}

Json memory_facts() {
  Json facts = Json::object();
  if (auto bytes = meminfo_bytes("MemTotal")) facts["total_bytes"] = *bytes;
  if (auto bytes = meminfo_bytes("MemAvailable")) facts["available_bytes"] = *bytes;
  if (auto bytes = control_group_limits().memory_bytes) facts["control_group_limit_bytes"] = *bytes;
  return facts;
}

std::optional<int64_t> usable_memory_bytes() {
  const std::optional<int64_t> total = meminfo_bytes("MemTotal"), limit = control_group_limits().memory_bytes;
  return total && limit ? std::min(total, limit) : (total ? total : limit);
}

Json disk_facts(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = folder.empty() ? std::filesystem::current_path(error)
                                              : std::filesystem::absolute(folder, error).lexically_normal();
  const std::string asked = path.string();
  while (!std::filesystem::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  Json facts = {{"folder", asked}};
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) == 0) {
    facts["free_bytes"] = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
    facts["total_bytes"] = static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize);
  }
  facts["writable"] = access(path.c_str(), W_OK) == 0;
  return facts;
}

Json environment_facts(const Environment& environment) {
  static constexpr const char* kNames[] = {"OMP_NUM_THREADS",
                                           "OPENBLAS_NUM_THREADS",
                                           "MKL_NUM_THREADS",
                                           "CUDA_VISIBLE_DEVICES",
                                           "HF_HOME",
                                           "HF_HUB_CACHE",
                                           "HF_HUB_OFFLINE",
                                           "TRANSFORMERS_OFFLINE",
                                           "HF_ENDPOINT",
                                           "HF_TOKEN",
                                           "SLURM_JOB_ID",
                                           "SLURM_NNODES",
                                           "SLURM_NTASKS",
                                           "SLURM_PROCID",
                                           "SLURM_LOCALID",
                                           "SLURM_CPUS_PER_TASK",
                                           "SLURM_MEM_PER_NODE",
                                           "SLURM_RESTART_COUNT",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "PMIX_RANK",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "NO_COLOR"};
  Json facts = Json::object();
  for (const char* name : kNames) {
    const auto it = environment.find(name);
    if (it != environment.end()) facts[name] = hides_value(name) ? "(set)" : it->second;
  }
  for (const auto& [name, value] : environment) {
    if (name.starts_with("TESSERA_")) facts[name] = hides_value(name) ? "(set)" : value;
  }
  return facts;
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
