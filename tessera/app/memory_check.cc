#include "tessera/app/memory_check.h"

#include <fmt/format.h>

#include "tessera/app/fit.h"
#include "tessera/app/machine.h"
#include "tessera/app/train_state.h"
#include "tessera/app/worker.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/report/text.h"
#include "tessera/store/background_checkpoint.h"

namespace tessera {

Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank) {
  const auto copy = [&](Engine& engine, Communicator& world) {
    const auto background = std::make_shared<BackgroundCheckpoint>(engine.host(), world);
    background->save({}, 0, [&](CheckpointPart& part) { declare_checkpoint(part, engine); });
    return background;
  };
  return plan_run(config, engine_options(settings), work, rank, settings.save_async ? copy : HeldBeside());
}

namespace {

// What to do about a run that does not fit: the fastest configuration that does.
std::string advice(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                   const MemoryLimits& limits) {
  const WorkBounds work = work_of(settings);
  const std::string general = fmt::format(
      "Use a smaller {}--max-length or a smaller model, or more ranks with a --strategy that shards; tessera plan "
      "shows what takes how much",
      work.evaluation.num_tokens > 0 ? "--eval-batch-size, a smaller " : "");
  if (work.training.num_tokens == 0) return general;
  const FitResult result = find_fit({config, settings, {}, work_of, rank, limits});
  if (!result.best) return "No strategy, batch size or checkpointing makes it fit. " + general;
  const Plan& plan = result.best->plan;
  return fmt::format("With {} it needs {} and fits; tessera plan shows what takes how much",
                     flags_between(settings, result.best->settings),
                     format_bytes(limits.one_memory ? plan.peak_bytes() : plan.device.peak_total()));
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
  MemoryLimits limits{.one_memory = !gpu};
  const auto refuse = [&](const std::string& needed, int64_t has_bytes, const char* of) {
    throw OutOfMemoryError("memory",
                           fmt::format("the run needs {}, and {} has {}", needed, of, format_bytes(has_bytes)),
                           advice(config, settings, work_of, rank, limits));
  };
  const std::optional<int64_t> usable_bytes = usable_memory_bytes();
  if (usable_bytes) (gpu ? limits.host_bytes : limits.device_bytes) = *usable_bytes / local.count;
  if (gpu) {
    limits.device_bytes = *gpu_bytes;
    const int64_t needed = (rank.rank == 0 ? first : other).device.peak_total();
    if (needed > limits.device_bytes) refuse(format_bytes(needed), limits.device_bytes, "the GPU");
  }
  if (!usable_bytes) return;
  const auto bytes_of = [&](const Plan& plan) { return gpu ? plan.host.peak_total() : plan.peak_bytes(); };
  const int64_t of_first = bytes_of(local.with_first ? first : other), of_others = bytes_of(other);
  if (of_first + (local.count - 1) * of_others <= *usable_bytes) return;
  refuse(local.count == 1 ? format_bytes(of_first)
                          : fmt::format("{} for each of {} ranks here", format_bytes(of_first), local.count),
         *usable_bytes, "this machine");
}

}  // namespace tessera
