// What the parts of the engine share: memory, kernels, streams, ranks, and how the sections of each unit are cut into
// shards.
#pragma once

#include <algorithm>
#include <vector>

#include "tessera/base/math.h"
#include "tessera/comm/communicator.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/model/model.h"
#include "tessera/optim/adamw.h"

namespace tessera {

inline int64_t bytes_of(int64_t elems, DType dtype) {
  return elems * static_cast<int64_t>(size_of(dtype));
}

// The groups of ranks that this rank belongs to.
class RankGroups {
 public:
  // Creates the groups of the plan, which must be a plan for this world. All ranks must call this constructor.
  RankGroups(Communicator& world_group, const ShardPlan& plan);

  Communicator* world;
  Communicator* shard;    // the ranks of this rank's shard group (shard_plan.h)
  Communicator* replica;  // the ranks that hold the same shard as this rank, including this rank

 private:
  std::unique_ptr<Communicator> own_shard_, own_replica_;
};

// The streams of a rank. train_step.cc has a drawing of one step on these streams. On the CPU, the compute stream is
// the calling thread. `upload` is separate from `copy`, because the next forward needs the first units' parameters
// while the last units are still updated.
struct Streams {
  Stream* compute = nullptr;       // runs kernels
  std::unique_ptr<Stream> comm;    // runs collectives, in the same order on all ranks
  std::unique_ptr<Stream> upload;  // moves batches and parameters to the device
  std::unique_ptr<Stream> copy;    // moves gradients, states and new parameters between tiers
  std::unique_ptr<Stream> host;    // runs CPU kernels on offloaded arrays; null without offloading
  // For states in host memory that the device updates; otherwise null. Copies of one step must not delay the batch of
  // the next step (upload), or the new parameters that the host sends (copy).
  std::unique_ptr<Stream> states_in, updates, states_out;
};

struct EngineContext {
  Device& device;
  Device& host;  // memory of the host tier, with its own ledger even if the device is the CPU
  Kernels& ops;
  Kernels* host_ops;  // for host memory; null if nothing is offloaded and the host cannot access the device's memory
  RankGroups ranks;
  ShardPlan plan;
  const Model& model;
  DType dtype;  // type of the computation
  Streams streams;
  PerSection<DType> formats;                  // the storage type of the parameters of each section
  std::vector<PerSection<UnitShards>> units;  // how each section of each unit is cut into shards
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  int64_t file_bytes = 0;  // bytes of arrays on Tier::file

  // The type of one micro-batch's gradients.
  DType gradient_dtype() const { return tessera::gradient_dtype(dtype, plan.options().reduce_dtype); }
  // The type of gradients accumulated over micro-batches.
  DType sum_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
  // The types of master parameters, and of AdamW's first and second moments. An element of quantized moments is a block
  // of several values (values_of()).
  DType master_dtype() const { return optimizer_states == OptimizerStates::bf16 ? DType::bf16 : sum_dtype(); }
  DType moment1_dtype() const { return optimizer_states == OptimizerStates::q8 ? DType::q8_signed : master_dtype(); }
  DType moment2_dtype() const { return optimizer_states == OptimizerStates::q8 ? DType::q8_unsigned : master_dtype(); }
  // Whether two arrays together hold each f32 master: 16 bits in the format of the parameters, and the rest.
  bool splits_masters() const { return formats[Section::trainable] != master_dtype(); }
  int64_t num_units() const { return model.num_units(); }
  // The outer units are the units that are not blocks: the root, and an untied head. Their sizes differ from the
  // blocks' sizes. Each outer unit has its own slot, a buffer for the complete unit. The blocks share the other
  // slots, which come after the slots of outer units.
  size_t num_outer_units() const { return static_cast<size_t>(num_units() - model.num_blocks()); }
  bool is_outer(int64_t unit) const { return !model.is_block(unit); }
  size_t slot_of_outer(int64_t unit) const { return unit == 0 ? 0 : 1; }
  // Returns the size of a slot. The slot of an outer unit has the size of this unit. A slot for blocks has the size of
  // the largest block. size_of_unit(unit) returns the size that a unit needs.
  template <typename Size>
  int64_t slot_size(size_t slot, Size&& size_of_unit) const {
    if (slot < num_outer_units()) return size_of_unit(slot == 0 ? 0 : model.head_unit());
    int64_t most = 0;
    for (int64_t u = 1; u <= model.num_blocks(); ++u) most = std::max(most, size_of_unit(u));
    return most;
  }
  // size_of_unit(unit) of each unit.
  template <typename Size>
  std::vector<int64_t> of_units(Size&& size_of_unit) const {
    std::vector<int64_t> sizes;
    for (int64_t u = 0; u < num_units(); ++u) sizes.push_back(size_of_unit(u));
    return sizes;
  }
  // How a section of a unit is cut into shards.
  const UnitShards& cut(int64_t unit, Section section) const { return units[static_cast<size_t>(unit)][section]; }
  // The cut of the trainable section. Only this section has gradients, optimizer states and updates.
  const UnitShards& trained_cut(int64_t unit) const { return cut(unit, Section::trainable); }
  bool trains(int64_t unit) const { return trained_cut(unit).num_elems > 0; }
  // Large arrays move between tiers in pieces of this many values. A piece of quantized moments consists of complete
  // blocks.
  int64_t piece_elems() const { return round_up(plan.options().piece_elems, values_of(moment1_dtype())); }
  // The number of elements of this type in a piece. A piece of NF4 groups has the bytes of a piece in f32.
  int64_t piece_elems(DType type) const {
    if (type != DType::nf4) return piece_elems() / values_of(type);
    return std::max<int64_t>(1, bytes_of(piece_elems(), DType::f32) / bytes_of(1, type));
  }
  // The elements of a unit that this rank updates.
  ElemRange updated(int64_t unit) const { return plan.updated(trained_cut(unit)); }
  // A buffer in host memory for a piece of updated(unit), as elements of the given type, of any unit with needs(unit).
  // Empty if no unit needs it.
  template <typename Needs>
  Buffer staging_of_updated(DType elem_type, Needs&& needs) const {
    int64_t most = 0;
    for (int64_t u = 0; u < num_units(); ++u) {
      if (needs(u)) most = std::max(most, std::min(piece_elems(), updated(u).size()));
    }
    return most > 0 ? host.allocate(bytes_of(most / values_of(elem_type), elem_type), Category::staging) : Buffer();
  }
};

// Elements [begin, end) of a flat view.
inline View part_of(View flat, ElemRange range) {
  return flat.rows(range.begin, range.end);
}

}  // namespace tessera
