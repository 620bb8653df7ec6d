// What one rank works with: threads, memory and kernels, and the other ranks.
#pragma once

#include <memory>

#include "tessera/app/settings.h"
#include "tessera/engine/engine.h"

namespace tessera {

class Worker {
 public:
  explicit Worker(const Settings& settings);

  ThreadPool& pool() { return pool_; }
  Device& device() const { return *device_; }
  Device& host() const { return *host_; }
  Communicator& world() { return *world_; }
  int rank() const { return world_->rank(); }
  int num_ranks() const { return world_->size(); }
  bool is_first() const { return rank() == 0; }
  EnginePlace place() { return {*device_, *host_, *world_, ranks_per_node_}; }
  // Both ledgers, of the device and of the host's tier.
  void enter(Phase phase) {
    device_->ledger().enter(phase);
    host_->ledger().enter(phase);
  }

 private:
  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> world_;
  int ranks_per_node_ = 1;
};

// What the engine is told: the same for a run and for its plan.
EngineOptions engine_options(const Settings& settings);

}  // namespace tessera
