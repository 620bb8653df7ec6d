// What a run will need, found by running its largest step, evaluation and generation on the counting device.
#pragma once

#include <algorithm>
#include <array>

#include "tessera/engine/engine.h"

namespace tessera {

struct Plan {
  Ledger device, host;  // bytes by phase and category, as the rank's own ledgers will have them
  // Of device and host together, where they share one memory: as if both had a phase's peaks at the same time.
  int64_t peak_bytes() const {
    int64_t most = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      const auto phase = static_cast<Phase>(p);
      most = std::max(most, device.peak_total(phase) + host.peak_total(phase));
    }
    return most;
  }

  int64_t file_bytes = 0;  // of what is offloaded to files

  std::array<int64_t, kNumPhases> head_bytes{};  // of the activations, what the head takes while it runs, by phase

  int64_t num_parameters = 0;
  int64_t micro_batch_flops = 0;             // forward and backward; attention as if its sequences had equal lengths
  int64_t step_bytes_sent = 0;               // by the rank, in a step of all its micro-batches
  int64_t step_bytes_sent_within_nodes = 0;  // of these, to groups of ranks of one node
};

// Of rank `rank` among `world_size`.
struct PlannedRank {
  int world_size = 1, rank = 0, ranks_per_node = 1, num_threads = 1;
  DeviceKind device = DeviceKind::cpu;
};
// `beside`, if given, makes what the run holds on the engine's devices from its first save on, until it collects its
// model.
using HeldBeside = std::function<std::shared_ptr<void>(Engine&, Communicator& world)>;
Plan plan_run(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work, const PlannedRank& rank,
              const HeldBeside& beside = {});

}  // namespace tessera
