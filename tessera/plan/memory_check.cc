#include "tessera/plan/memory_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/initial_weights.h"
#include "tessera/plan/advice.h"
#include "tessera/plan/machines.h"
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

namespace {

// Adds the bytes of the arrays that a rank declares.
class CountedPart : public CheckpointPart {
 public:
  void declare(const ArrayRange& range, DType dtype) override { bytes_ += bytes_of(range.end - range.begin, dtype); }
  void refer(const std::string&, int64_t, DType, const ReferencedFiles&) override {}
  void write(std::string_view, const View&) override {}
  void add_text(std::string_view, std::string_view) override {}
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace

Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank) {
  CountedPart part;
  const HeldBeside beside = held_beside(settings);
  Plan plan = plan_run(config, engine_options(settings), work, rank, [&](Engine& engine, Communicator& world) {
    declare_checkpoint(part, engine.states(), {{}, frozen_arrays_in_files(settings, engine.model())});
    return beside ? beside(engine, world) : nullptr;
  });
  plan.checkpoint_bytes = part.bytes();
  return plan;
}

namespace {

FitRequest request_of(const ModelConfig& config, const Settings& settings, const WorkOf& work_of,
                      const PlannedRank& rank, const MemoryLimits& limits) {
  return {config, settings, {}, work_of, work_of, rank, limits, assumed_machine(settings, rank)};
}

}  // namespace

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
  const MemoryLimits limits = run_limits(settings, local.count, gpu_bytes);
  const auto refuse = [&](const std::string& needed, int64_t has_bytes, const char* of) {
    throw OutOfMemoryError(
        "memory", fmt::format("the run needs {}, but {} has {} of usable memory", needed, of, format_bytes(has_bytes)),
        advice(request_of(config, settings, work_of, rank, limits)));
  };
  std::optional<int64_t> usable_bytes = usable_memory_bytes();
  if (settings.host_memory > 0)
    usable_bytes = std::min(usable_bytes.value_or(settings.host_memory), settings.host_memory);
  const Plan& own = rank.rank == 0 ? first : other;
  if (gpu && own.device.peak_total() > limits.device_bytes) {
    refuse(format_bytes(own.device.peak_total()), limits.device_bytes, "the GPU");
  }
  if (const int64_t given = std::max(settings.fit, settings.device_memory);
      !gpu && given > 0 && own.peak_bytes() > given) {
    refuse(format_bytes(own.peak_bytes()), given, "a rank");
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
  MemoryLimits limits = run_limits(settings, local.count, gpu_bytes);
  const Plan plan = plan_training(config, settings, work_of(settings), rank);
  const int64_t peak_bytes = limits.one_memory ? plan.peak_bytes() : plan.device.peak_total();
  limits.device_bytes = std::min(limits.device_bytes, peak_bytes / 10 * 9);
  return advice(request_of(config, settings, work_of, rank, limits));
}

}  // namespace tessera
