#include "tessera/app/machine.h"

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
#include "tessera/base/host_resources.h"
#include "tessera/base/instruction_sets.h"
#include "tessera/base/text.h"
#include "tessera/comm/communication_variables.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

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

bool hides_value(const std::string& name) {
  return name.find("TOKEN") != std::string::npos || name.find("KEY") != std::string::npos;
}

}  // namespace

Json build_facts() {
  return {{"version", version_text()},
          {"instruction_sets", joined(built_instruction_sets(), " ")},
          {"back_ends", cuda_info().built ? "cpu cuda" : "cpu"}};
}

Json cpu_facts() {
  Json facts = Json::object();
  if (auto model = value_of_key("/proc/cpuinfo", "model name")) facts["model"] = *model;
  facts["cores_online"] = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) facts["cores_allowed"] = CPU_COUNT(&set);
  if (auto cores = control_group_limits().cores) facts["cores_by_control_group"] = *cores;
  facts["simd"] = simd_of_machine();
  const std::vector<std::string> sets = usable_instruction_sets();
  facts["instruction_set"] = sets.empty() ? "" : sets.back();
  return facts;
}

Json memory_facts() {
  Json facts = Json::object();
  if (auto bytes = meminfo_bytes("MemTotal")) facts["total_bytes"] = *bytes;
  if (auto bytes = meminfo_bytes("MemAvailable")) facts["available_bytes"] = *bytes;
  if (auto bytes = control_group_limits().memory_bytes) facts["control_group_limit_bytes"] = *bytes;
  return facts;
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
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "NO_COLOR"};
  Json facts = Json::object();
  for (const char* name : kNames) {
    const auto it = environment.find(name);
    if (it != environment.end()) facts[name] = hides_value(name) ? "(set)" : it->second;
  }
  for (const auto& [name, value] : environment) {
    if (name.starts_with("TESSERA_")) facts[name] = hides_value(name) ? "(set)" : value;
  }
  for (const auto& [name, value] : communication_variables(environment)) facts[name] = value;
  return facts;
}

}  // namespace tessera
