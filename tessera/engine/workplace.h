// What the parts of the engine share: memory, kernels, streams, ranks, and the way units are cut.
#pragma once

#include <algorithm>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/model/model.h"

namespace tessera {

// The groups of ranks this rank belongs to.
class RankGroups {
 public:
  // Makes the groups of the plan, which is for this world. Collective.
  RankGroups(Communicator& world_group, const ShardPlan& plan);

  Communicator* world;
  Communicator* shard;    // the S ranks that hold a model together
  Communicator* replica;  // the ranks that hold the same shard

 private:
  std::unique_ptr<Communicator> own_shard_, own_replica_;
};

// Who runs when. On the CPU the compute stream is the calling thread. What the next forward needs first does not queue
// behind the update of what it needs last: uploads have a stream of their own.
struct Streams {
  Stream* compute = nullptr;       // kernels
  std::unique_ptr<Stream> comm;    // collectives, in one order on all ranks
  std::unique_ptr<Stream> upload;  // batches and parameters, on their way to the device
  std::unique_ptr<Stream> copy;    // gradients, states and new parameters, between tiers
  std::unique_ptr<Stream> host;    // work of the CPU's kernels on offloaded arrays; none without those
};

struct Workplace {
  Device& device;
  Device& host;  // memory of the host tier, with a ledger of its own, also where the device is the CPU
  Kernels& ops;
  Kernels& host_ops;  // of the host's memory; on the CPU, without offloading, those of the device
  RankGroups ranks;
  ShardPlan plan;
  const Model& model;
  DType dtype;  // of the computation
  Streams streams;
  std::vector<UnitShards> units;
  int64_t file_bytes = 0;  // of arrays on Tier::file

  // Of a micro-batch's gradients.
  DType gradient_dtype() const { return tessera::gradient_dtype(dtype, plan.options().reduce_dtype); }
  // Of master parameters, moments, and gradients added up over micro-batches.
  DType master_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  int64_t num_units() const { return model.num_units(); }
  const UnitShards& cut(int64_t unit) const { return units[static_cast<size_t>(unit)]; }
  int64_t largest_block_padded() const {
    int64_t most = 0;
    for (size_t u = 1; u < units.size(); ++u) most = std::max(most, units[u].padded_elems);
    return most;
  }
  // Of a piece in which large arrays pass between tiers.
  int64_t piece_elems() const { return plan.options().piece_elems; }
  // Of a buffer that the pieces of arrays of these sizes pass through.
  int64_t staging_elems(const std::vector<int64_t>& sizes) const {
    return std::min(piece_elems(), *std::max_element(sizes.begin(), sizes.end()));
  }
};

inline int64_t bytes_of(int64_t elems, DType dtype) {
  return elems * static_cast<int64_t>(size_of(dtype));
}
// Elements [begin, end) of a flat view.
inline View part_of(View flat, ElemRange range) {
  return flat.rows(range.begin, range.end);
}

}  // namespace tessera
