// The resources of one rank: threads, memory, kernels, and the other ranks.
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

// `gpus`: the GPU of each rank, by rank; empty: no GPU. UsageError if two ranks have the same GPU, or if only some
// ranks have one.
void check_gpus(const std::vector<std::string>& gpus);

// UsageError if the program has no code for this GPU.
void check_code(const CudaInfo& info, const CudaDeviceInfo& gpu);

// UsageError if the GPU's tensor cores do not support the type of --precision.
void check_precision(Settings::Precision precision, const CudaDeviceInfo& gpu);

// A note for runs with --device auto that use the CPU although a GPU was probably intended: the machine has a driver,
// or `variable` returns variables that assign GPUs. Otherwise empty.
std::string note_of_no_gpu(const CudaInfo& info, const std::function<const char*(const char*)>& variable);

class Worker {
 public:
  // This rank of `world`; a single rank if `world` is null. Collective.
  explicit Worker(const Settings& settings, World* world = nullptr);

  ThreadPool& pool() { return pool_; }
  Device& device() const { return *device_; }
  Device& host() const { return *host_; }
  Communicator& world() const { return *group_; }
  int rank() const { return group_->rank(); }
  int num_ranks() const { return group_->size(); }
  LocalRanks local_ranks() const;
  bool is_first() const { return rank() == 0; }
  // This rank, for a plan of its work.
  PlannedRank planned_rank() const;
  EnginePlace place() { return {*device_, *host_, *group_, ranks_per_node_}; }
  // Prints a note if no GPU is used although one seems to exist, and one if 16-bit arithmetic is emulated.
  void note_device(const Settings& settings, Console& console) const;
  // Warns if host memory is not pinned that should be. Call it when all memory is allocated.
  void note_unpinned(Console& console) const;
  // Sets the phase of the run for the ledgers of device and host, and for reports of failures.
  void enter(Phase phase);

 private:
  World* const world_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> group_;
  int ranks_per_node_ = 1;
};

}  // namespace tessera
