// What a machine gives each of its ranks: memory of the device and of the host, and room for files.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tessera/engine/plan.h"
#include "tessera/settings/settings.h"

namespace tessera {

// What a rank may hold.
struct MemoryLimits {
  int64_t device_bytes = std::numeric_limits<int64_t>::max();
  int64_t host_bytes = std::numeric_limits<int64_t>::max();
  bool one_memory = false;  // the device's memory is the host's: both together are held to device_bytes
  int64_t disk_bytes = std::numeric_limits<int64_t>::max();  // of files that arrays are offloaded to
};

// The folder of what is offloaded to files: --offload-dir, else `offload` in the output folder.
std::string offload_folder(const Settings& settings);

// What is free on the disk where `folder` is, or would be. 0 where it is memory: files there free nothing.
std::optional<int64_t> free_disk_bytes(const std::string& folder);

// Of this machine, for each of `num_ranks` on it: its memory, `gpu_bytes` of a GPU, and the disk of offload_folder().
MemoryLimits limits_here(const Settings& settings, int num_ranks, std::optional<int64_t> gpu_bytes);

// As a plan has them: --fit or --device-memory, --host-memory and --disk, which the ranks of a node share, else this
// machine's.
MemoryLimits planned_limits(const Settings& settings, const PlannedRank& rank);

}  // namespace tessera
