// Runs that cannot fit are refused before they touch memory.
#pragma once

#include <functional>
#include <optional>

#include "tessera/engine/plan.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The bounds of the work that a run with these settings asks of the engine.
using WorkOf = std::function<WorkBounds(const Settings&)>;

// What an engine takes.
inline constexpr int64_t kMaxPlannedTokens = kMaxBatchTokens;

// The plan of a training run's rank: the engine's, and what saving takes beside it.
Plan plan_training(const ModelConfig& config, const Settings& settings, const WorkBounds& work,
                   const PlannedRank& rank);

// The ranks of a run on one machine, as their memory is checked.
struct LocalRanks {
  int count = 1;
  bool with_first = true;  // the world's first rank, which collects the model at the end, is one of them
};

// Of a GPU, what this process may have now: what is free on it, and what the device holds. None of a CPU.
std::optional<int64_t> usable_gpu_bytes(Device& device);

// Plans the work and compares what the ranks of this machine need together with the memory that they may have
// (`gpu_bytes` of rank.rank's GPU, where ranks have GPUs), the control group's limit included. OutOfMemoryError tells
// both, and a command that would fit.
void check_memory(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                  LocalRanks local, std::optional<int64_t> gpu_bytes);

// Compares what the ranks of this machine offload to files with the room on the disk of --offload-dir. RunError where
// it is too little. Before the files are made.
void check_disk(const ModelConfig& config, const Settings& settings, const WorkOf& work_of, const PlannedRank& rank,
                LocalRanks local);

// What to do about a run that fits by its plan, and did not: the fastest one that needs at most nine tenths of it.
std::string advice_for_less(const ModelConfig& config, const Settings& settings, const WorkOf& work_of,
                            const PlannedRank& rank, LocalRanks local, std::optional<int64_t> gpu_bytes);

// Does work that has been found to fit into memory. If memory runs out after all, `check` is made: its OutOfMemoryError
// says what fits into what is left, and what failed. Where it returns, it returns what to do.
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
