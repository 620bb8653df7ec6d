#include "tessera/plan/memory_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/initial_weights.h"
#include "tessera/plan/advice.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/background_checkpoint.h"
#include "tessera/store/engine_checkpoint.h"

namespace tessera {

HeldBeside held_beside(const Settings& settings) {
  if (!settings.save_async) return {};
  return [settings](Engine& engine, Communicator& world) {
    auto background = std::make_shared<BackgroundCheckpoint>(engine.host(), world);
    const FrozenFiles frozen{{}, frozen_arrays_in_files(settings, engine.model())};
    background->save({}, 0, [&](CheckpointPart& part) { declare_checkpoint(part, engine.states(), frozen); });
    return background;
  };
}

Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank) {
  return plan_run(config, engine_options(settings), work, rank, held_beside(settings));
}

std::optional<int64_t> usable_gpu_bytes(Device& device) {
  if (device.kind() != DeviceKind::cuda) return {};
  return cuda_memory_of(device).usable_bytes;
}

void check_memory(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                  LocalRanks local, std::optional<int64_t> gpu_bytes) {
  const WorkBounds work = work_of(settings);
  const auto plan_of = [&](int number) {
    PlannedRank planned = rank;
    planned.rank = number;
    return plan_training(config, settings, work, planned);
  };
  const Plan first = plan_of(0), other = rank.world_size > 1 ? plan_of(1) : first;
  const bool gpu = gpu_bytes.has_value();
  TESSERA_ASSERT(gpu == (rank.device == DeviceKind::cuda));
  const MemoryLimits limits = limits_here(settings, local.count, gpu_bytes);
  const auto refuse = [&](const std::string& needed, int64_t has_bytes, const char* of) {
    throw OutOfMemoryError(
        "memory", fmt::format("the run needs {}, but {} has {} of usable memory", needed, of, format_bytes(has_bytes)),
        advice({config, settings, {}, work_of, rank, limits}));
  };
  const std::optional<int64_t> usable_bytes = usable_memory_bytes();
  if (gpu) {
    const int64_t needed = (rank.rank == 0 ? first : other).device.peak_total();
    if (needed > limits.device_bytes) refuse(format_bytes(needed), limits.device_bytes, "the GPU");
  }
  if (!usable_bytes) return;
  const auto bytes_of = [&](const Plan& plan) { return gpu ? plan.host.peak_total() : plan.peak_bytes(); };
  const int64_t of_first = bytes_of(local.with_first ? first : other), of_others = bytes_of(other);
  const int64_t needed = of_first + (local.count - 1) * of_others;
  if (needed <= *usable_bytes) return;
  refuse(local.count == 1 ? format_bytes(of_first)
                          : fmt::format("{} for its {} ranks on this machine", format_bytes(needed), local.count),
         *usable_bytes, "this machine");
}

void check_disk(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                LocalRanks local) {
  if (!settings.offload.uses(Tier::file)) return;
  PlannedRank planned = rank;
  planned.rank = 0;
  const int64_t needed = plan_training(config, settings, work_of(settings), planned).file_bytes * local.count;
  const int64_t has = free_disk_bytes(settings.offload_dir).value_or(0);
  if (has == 0 || needed <= has) return;  // 0: the free bytes are not known, or the file system is in memory
  throw RunError(option_place("offload_dir"),
                 fmt::format("the run needs {} for files, but the disk of {} has only {} free", format_bytes(needed),
                             settings.offload_dir, format_bytes(has)),
                 "Give --offload-dir on a disk with more free space, or offload less");
}

std::string advice_for_less(const ModelConfig& config, const Settings& settings, const WorkOf& work_of,
                            const PlannedRank& rank, LocalRanks local, std::optional<int64_t> gpu_bytes) {
  MemoryLimits limits = limits_here(settings, local.count, gpu_bytes);
  const Plan plan = plan_training(config, settings, work_of(settings), rank);
  const int64_t peak_bytes = limits.one_memory ? plan.peak_bytes() : plan.device.peak_total();
  limits.device_bytes = std::min(limits.device_bytes, peak_bytes / 10 * 9);
  return advice({config, settings, {}, work_of, rank, limits});
}

}  // namespace tessera
