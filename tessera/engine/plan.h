// The memory and work that a run will need. plan_run() finds them: it runs the largest step, evaluation and generation
// on the counting device.
#pragma once

#include <algorithm>
#include <array>
#include <functional>

#include "tessera/engine/engine.h"

namespace tessera {

struct Plan {
  Ledger device, host;  // bytes by phase and category, as in the ledgers of a run
  // Peak of device and host together, for machines where both share one memory. Assumes that both reach a phase's peak
  // at the same time.
  int64_t peak_bytes() const {
    int64_t most = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      const auto phase = static_cast<Phase>(p);
      most = std::max(most, device.peak_total(phase) + host.peak_total(phase));
    }
    return most;
  }

  int64_t file_bytes = 0;        // of this rank's files for offloaded arrays
  int64_t checkpoint_bytes = 0;  // that this rank writes; only of plan_training()

  std::array<int64_t, kNumPhases> head_bytes{};  // peak bytes of the head on the activation stack, by phase

  int64_t num_parameters = 0, num_trainable_parameters = 0;
  // The operations of forward and backward for one micro-batch. This includes attention: its work is computed from
  // BatchBounds::mean_length.
  int64_t micro_batch_flops = 0;
  int64_t step_bytes_sent = 0;               // by this rank in one step, over all micro-batches
  int64_t step_bytes_sent_within_nodes = 0;  // the part sent in groups whose ranks are all on one node
};

// The rank to plan: `rank` of `world_size`.
struct PlannedRank {
  int world_size = 1, rank = 0, ranks_per_node = 1, num_threads = 1;
  DeviceKind device = DeviceKind::cpu;
};
// Returns a function that estimates the work of all blocks on a sample of `length` tokens, including attention. The
// unit of the estimate is the work of one block on one token without attention.
std::function<int64_t(int64_t length)> cost_of_samples(const Model& model);

// `beside`, if given, allocates the additional memory that a run holds on the engine's devices from its first save
// until its end.
using HeldBeside = std::function<std::shared_ptr<void>(Engine&, Communicator& world)>;
Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work, const PlannedRank& rank,
              const HeldBeside& beside = {});

}  // namespace tessera
