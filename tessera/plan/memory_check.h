// Refuses runs that cannot fit into memory or on the disk, before they allocate memory or create files.
#pragma once

#include <functional>
#include <optional>

#include "tessera/engine/plan.h"
#include "tessera/settings/settings.h"

namespace tessera {

// Returns the bounds of the engine's work in a run with these settings.
using WorkOf = std::function<WorkBounds(const Settings&)>;

// What a training run holds beside its engine: with --save-async, the copy of the checkpoint in host memory.
HeldBeside held_beside(const Settings& settings);

// Returns the engine's plan for one rank of a training run. With --save-async, the plan also includes the copy of the
// checkpoint in host memory.
Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank);

// The ranks of a run that are on this machine, for the memory check.
struct LocalRanks {
  int count = 1;
  bool with_first = true;  // rank 0 of the world is on this machine
};

// Bytes of a GPU that this process can use now: free bytes plus bytes that `device` already holds. nullopt for a CPU.
std::optional<int64_t> usable_gpu_bytes(Device& device);

// Plans the work, and compares the host memory that all ranks on this machine need with the memory of the machine, or
// with the limit of the control group (cgroup) if that is lower. On GPUs, also compares the GPU memory that the rank
// `rank.rank` needs with `gpu_bytes`. If the run does not fit, throws OutOfMemoryError with the needed and the
// available bytes, and with the command of a run that fits.
void check_memory(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                  LocalRanks local, std::optional<int64_t> gpu_bytes);

// Compares the planned size of the files of all ranks on this machine with the free space on the disk of --offload-dir.
// Throws RunError if the space is too small. Call this function before the ranks create the files.
void check_disk(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                LocalRanks local);

// Advice for a run that ran out of memory although its plan fits: the fastest run that needs at most 90 % of the
// planned memory. On a GPU, the 90 % apply only to the GPU memory, not to the host memory.
std::string advice_for_less(const ModelConfig& config, const Settings& settings, const WorkOf& work_of,
                            const PlannedRank& rank, LocalRanks local, std::optional<int64_t> gpu_bytes);

// Runs `work`, which fits into memory according to its plan, and returns its result. If `work` runs out of memory,
// calls `check` and then throws a new OutOfMemoryError. If `check` throws OutOfMemoryError (with advice for the memory
// that is left), the new error has the text of this second error and also names the failed allocation. If `check`
// returns, the new error describes the failed allocation and has the returned text as its advice.
template <typename Work>
auto within_memory(const std::function<std::string()>& check, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const OutOfMemoryError& failed) {
    std::string advice;
    try {
      advice = check();
    } catch (const OutOfMemoryError& refused) {
      throw OutOfMemoryError("", refused.what(), std::string("What failed: ") + failed.what());
    }
    throw OutOfMemoryError("", failed.what(), advice);
  }
}

}  // namespace tessera
