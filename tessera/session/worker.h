// The resources of one rank: threads, memory, kernels, and the other ranks.
#pragma once

#include <functional>
#include <memory>

#include "tessera/comm/world.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/engine/plan.h"
#include "tessera/log/console.h"
#include "tessera/plan/memory_check.h"
#include "tessera/settings/settings.h"

namespace tessera {

// `gpus` has one id for each rank, which is empty if the rank has no GPU. Throws UsageError if two ranks have the same
// GPU, or if only some ranks have a GPU.
void check_gpus(const std::vector<std::string>& gpus);

// Throws UsageError if the program has no code for this GPU.
void check_code(const CudaInfo& info, const CudaDeviceInfo& gpu);

// Whether the GPU computes in bf16 and tf32.
bool has_bf16(const CudaDeviceInfo& gpu);

// Throws UsageError if --precision is bf16 or tf32, and the GPU has no tensor cores for this type.
void check_precision(Settings::Precision precision, const CudaDeviceInfo& gpu);

// A note for runs with --device auto that use the CPU although the user probably expects a GPU: the machine has a
// driver, or environment variables assign GPUs. `variable` returns the value of a variable, or null. Empty if no note
// is needed.
std::string note_of_no_gpu(const CudaInfo& info, const std::function<const char*(const char*)>& variable);

class Worker {
 public:
  // Makes the resources of this rank of `world`, or of a single rank if `world` is null. Collective.
  explicit Worker(const Settings& settings, World* world = nullptr);

  ThreadPool& pool() { return pool_; }
  Device& device() const { return *device_; }
  Device& host() const { return *host_; }
  Communicator& world() const { return *group_; }
  int rank() const { return group_->rank(); }
  int num_ranks() const { return group_->size(); }
  LocalRanks local_ranks() const;
  std::vector<int> nodes() const;  // the number of each rank's node
  bool is_first() const { return rank() == 0; }
  bool is_first_of_node() const;
  PlannedRank planned_rank() const;  // this rank, as a plan needs it
  EnginePlace place() { return {*device_, *host_, *group_, ranks_per_node_}; }
  // Prints the precision and the device.
  void note_precision(const Settings& settings, Console& console) const;
  // With --device auto, prints the note of note_of_no_gpu(). Prints another note if the CPU emulates 16-bit arithmetic.
  void note_device(const Settings& settings, Console& console) const;
  // Warns if a part of the host memory is not pinned although it should be. Call it when all memory is allocated.
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
