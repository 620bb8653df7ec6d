// What one rank works with: threads, memory and kernels, and the other ranks.
#pragma once

#include <functional>
#include <memory>

#include "tessera/comm/world.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/engine/plan.h"
#include "tessera/plan/memory_check.h"
#include "tessera/report/console.h"
#include "tessera/settings/settings.h"

namespace tessera {

// `gpus` tells each rank's GPU, by an empty text that it has none: UsageError where two ranks have the same, or some
// have one and others not.
void check_gpus(const std::vector<std::string>& gpus);

// UsageError where the program was built for later GPUs.
void check_code(const CudaInfo& info, const CudaDeviceInfo& gpu);

// UsageError where the GPU's tensor cores do not know the type of --precision.
void check_precision(Settings::Precision precision, const CudaDeviceInfo& gpu);

// What a run with --device auto that goes to the CPU is told where it may have been meant for a GPU: with a driver on
// the machine, or variables that give it GPUs. Else empty.
std::string note_of_no_gpu(const CudaInfo& info, const std::function<const char*(const char*)>& variable);

class Worker {
 public:
  // As one of the ranks of a world, or alone without one. Collective.
  explicit Worker(const Settings& settings, World* world = nullptr);

  ThreadPool& pool() { return pool_; }
  Device& device() const { return *device_; }
  Device& host() const { return *host_; }
  Communicator& world() const { return *group_; }
  int rank() const { return group_->rank(); }
  int num_ranks() const { return group_->size(); }
  LocalRanks local_ranks() const;
  bool is_first() const { return rank() == 0; }
  // As the work of one rank of this world is planned.
  PlannedRank planned_rank() const;
  EnginePlace place() { return {*device_, *host_, *group_, ranks_per_node_}; }
  // Tells, where it is so, that no GPU is used though there seems to be one, and that 16-bit arithmetic is emulated.
  void note_device(const Settings& settings, Console& console) const;
  // A phase of the run, for the ledgers of the device and of the host's tier, and for the account of a failure.
  void enter(Phase phase);

 private:
  World* const world_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> group_;
  int ranks_per_node_ = 1;
};

}  // namespace tessera
