#include "tessera/plan/limits.h"

#include <sys/statfs.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/plan/known_gpus.h"

namespace tessera {

namespace fs = std::filesystem;

std::string offload_folder(const Settings& settings) {
  if (!settings.offload_dir.empty()) return settings.offload_dir;
  return (fs::path(settings.output_dir) / "offload").string();
}

std::optional<int64_t> free_disk_bytes(const std::string& folder) {
  constexpr int64_t kTmpfs = 0x01021994, kRamfs = 0x858458f6;
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  while (!fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return std::nullopt;
  if (info.f_type == kTmpfs || info.f_type == kRamfs) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_bsize);
}

MemoryLimits limits_here(const Settings& settings, int num_ranks, std::optional<int64_t> gpu_bytes) {
  MemoryLimits limits{.one_memory = !gpu_bytes};
  if (gpu_bytes) limits.device_bytes = *gpu_bytes;
  if (const auto memory = usable_memory_bytes())
    (gpu_bytes ? limits.host_bytes : limits.device_bytes) = *memory / num_ranks;
  if (const auto disk = free_disk_bytes(offload_folder(settings))) limits.disk_bytes = *disk / num_ranks;
  return limits;
}

MemoryLimits run_limits(const Settings& settings, int num_ranks, std::optional<int64_t> gpu_bytes) {
  MemoryLimits limits = limits_here(settings, num_ranks, gpu_bytes);
  const auto lower = [](int64_t& limit, int64_t given) {
    if (given > 0) limit = std::min(limit, given);
  };
  lower(limits.device_bytes, std::max(settings.fit, settings.device_memory));
  lower(limits.one_memory ? limits.device_bytes : limits.host_bytes, settings.host_memory / num_ranks);
  lower(limits.disk_bytes, settings.disk / num_ranks);
  return limits;
}

bool plans_another_machine(const Settings& settings, const PlannedRank& rank) {
  if (known_gpu_by_word(settings.machine)) return true;
  if (settings.fit == Settings::kThisMachine) return false;
  if (settings.fit > 0 || settings.device_memory > 0 || settings.host_memory > 0) return true;
  return rank.world_size > rank.ranks_per_node || (rank.device == DeviceKind::cuda && cuda_info().devices.empty());
}

MemoryLimits planned_limits(const Settings& settings, const PlannedRank& rank) {
  const int ranks_of_node = std::min(rank.world_size, rank.ranks_per_node);
  const int64_t host = settings.host_memory / ranks_of_node;
  const KnownGpu* known = known_gpu_by_word(settings.machine);
  const int64_t given = settings.fit > 0             ? settings.fit
                        : settings.device_memory > 0 ? settings.device_memory
                        : known                      ? known->memory_bytes
                                                     : 0;
  const bool cuda = rank.device == DeviceKind::cuda;
  MemoryLimits limits{.one_memory = !cuda};
  if (!plans_another_machine(settings, rank)) {
    std::optional<int64_t> gpu_bytes;
    if (cuda) {
      const CudaInfo info = cuda_info();
      if (info.devices.empty()) {
        throw UsageError(option_place("fit"),
                         "auto is the memory of this machine, but the plan is for GPUs and this machine has none",
                         "Give the memory of a GPU, for example --fit 80GiB, or name one with --machine");
      }
      gpu_bytes = info.devices[0].memory_bytes;
    }
    limits = limits_here(settings, ranks_of_node, gpu_bytes);
  }
  if (settings.disk > 0) limits.disk_bytes = settings.disk / ranks_of_node;
  if (host > 0) (cuda ? limits.host_bytes : limits.device_bytes) = host;
  if (given > 0) limits.device_bytes = cuda || host == 0 ? given : std::min(given, host);
  return limits;
}

}  // namespace tessera
