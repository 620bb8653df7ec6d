#include "tessera/app/memory_check.h"

#include <fmt/format.h>

#include "tessera/app/machine.h"
#include "tessera/app/train_state.h"
#include "tessera/app/worker.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/report/text.h"
#include "tessera/store/background_checkpoint.h"

namespace tessera {

Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank) {
  const auto at_save = [&](Engine& engine, Communicator& world) {
    if (!settings.save_async) return;
    BackgroundCheckpoint background(engine.host(), world);
    background.save({}, 0, [&](CheckpointPart& part) { declare_checkpoint(part, engine); });
  };
  return plan_run(config, engine_options(settings), work, rank, at_save);
}

void check_memory(const ModelConfig& config, const Settings& settings, const WorkBounds& work, const PlannedRank& rank,
                  int num_local_ranks, Device& device) {
  const Plan plan = plan_training(config, settings, work, rank);
  const auto refuse = [](const std::string& needed, int64_t usable_bytes, const char* of) {
    throw OutOfMemoryError("memory",
                           fmt::format("the run needs {}, and {} has {}", needed, of, format_bytes(usable_bytes)),
                           "Use a smaller --batch-size or --max-length, --activation-checkpointing block, a --strategy "
                           "that shards more, or a "
                           "smaller model; tessera plan shows what takes how much");
  };
  int64_t rank_bytes = plan.peak_bytes();
  if (rank.device == DeviceKind::cuda) {
    rank_bytes = plan.host.peak_total();
    const int64_t free_bytes = cuda_memory_of(device).free_bytes;
    if (plan.device.peak_total() > free_bytes) {
      refuse(format_bytes(plan.device.peak_total()), free_bytes, "the GPU");
    }
  }
  const std::optional<int64_t> usable_bytes = usable_memory_bytes();
  if (!usable_bytes || rank_bytes * num_local_ranks <= *usable_bytes) return;
  refuse(num_local_ranks == 1 ? format_bytes(rank_bytes)
                              : fmt::format("{} for each of {} ranks here", format_bytes(rank_bytes), num_local_ranks),
         *usable_bytes, "this machine");
}

}  // namespace tessera
