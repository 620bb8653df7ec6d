// The limits of a rank on a machine: memory of device and host, and disk space.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tessera/engine/plan.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The limits of one rank. The maximum of int64_t means that a limit is not known.
struct MemoryLimits {
  int64_t device_bytes = std::numeric_limits<int64_t>::max();
  int64_t host_bytes = std::numeric_limits<int64_t>::max();
  bool one_memory = false;  // device and host share one memory: device_bytes limits the sum of both
  int64_t disk_bytes = std::numeric_limits<int64_t>::max();  // for arrays offloaded to files
};

// The folder for arrays that are offloaded to files: --offload-dir, otherwise `offload` in the output folder.
std::string offload_folder(const Settings& settings);

// Free bytes on the disk of `folder`. The folder need not exist yet. 0 for a file system in memory, because files there
// save no memory. nullopt if the free bytes are not known.
std::optional<int64_t> free_disk_bytes(const std::string& folder);

// The limits of one of `num_ranks` ranks on this machine: an equal share of the host memory, `gpu_bytes` of GPU memory
// (nullopt: the CPU is the device), and an equal share of the free space on the disk of offload_folder().
MemoryLimits limits_here(const Settings& settings, int num_ranks, std::optional<int64_t> gpu_bytes);

// The limits of a run: limits_here(), lowered to the sizes of --fit, --device-memory, --host-memory and --disk. The
// ranks of a node share the latter two.
MemoryLimits run_limits(const Settings& settings, int num_ranks, std::optional<int64_t> gpu_bytes);

// How many of a rank's bytes of host memory may be pinned: nine tenths. A tenth stays unpinned, because the system
// cannot move or swap out pinned pages.
constexpr int64_t pinnable_bytes(int64_t host_bytes) {
  return host_bytes / 10 * 9;
}

// Whether a plan is for another machine than this one: if --machine names a GPU, if --fit, --device-memory or
// --host-memory gives a size, if the ranks need several nodes, or if the plan is for GPUs and this machine has none.
// `--fit auto` means this machine, or nodes like it.
bool plans_another_machine(const Settings& settings, const PlannedRank& rank);

// The limits for a plan. --fit, or --device-memory without --fit, or the GPU that --machine names limits the device
// memory of a rank. The ranks of a
// node share --host-memory and --disk. A limit that the settings do not give is the limit of this machine. In a plan
// for another machine, it is not known instead. Throws UsageError for `--fit auto` if the plan is for GPUs and this
// machine has none.
MemoryLimits planned_limits(const Settings& settings, const PlannedRank& rank);

}  // namespace tessera
