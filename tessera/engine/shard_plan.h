// Decides which rank holds which elements. A strategy is a row of a table. A ShardPlan applies the row to the ranks of
// a run. This file only calculates: it allocates and moves nothing.
//
// The ranks of a shard group divide one copy of the arrays into shards. Letters: S is the number of ranks in a shard
// group, P the number of elements in a section of a unit, s the number of elements in a shard.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/model/model.h"

namespace tessera {

enum class ShardingStrategy { no_shard, zero1, zero2, shard_grad_op, full_shard, hybrid_shard, hybrid_shard_zero2 };

// What a rank of a shard group keeps, and when. One table for ZeRO and FSDP (terms: docs/strategies.md). If a field
// shard_… is true, the rank keeps only its own shard of the arrays that the field's comment names. Otherwise it keeps
// all their elements.
struct StrategyRow {
  ShardingStrategy strategy;
  const char* name;
  bool shard_optimizer;     // AdamW's states and master parameters
  bool shard_gradients;     // gradients after their reduction
  bool shard_parameters;    // parameters while no computation uses them
  bool free_after_forward;  // free a block's gathered parameters after its forward and gather them again for its
                            // backward
  bool within_nodes;  // the world is divided into shard groups, by default one per node; each group holds one copy
                      // of the arrays
};
std::span<const StrategyRow> strategy_rows();
const StrategyRow& row_of(ShardingStrategy strategy);

// The place where arrays of one kind are kept between uses.
enum class Tier { device, host, file };
const char* name_of(Tier tier);

// The kinds of arrays of a unit. The parameters of each section are a kind.
enum class ArrayKind { trainable, frozen, gradients, optimizer };  // frozen: also quantized
constexpr ArrayKind kind_of(Section section) {
  return section == Section::trainable ? ArrayKind::trainable : ArrayKind::frozen;
}

// How many units of a kind are offloaded. The offloaded units are the last ones in forward order, because the next
// forward needs them last: their update on the host then overlaps this forward.
struct OffloadedPart {
  enum class Of { all, blocks, percent, automatic };
  Of of = Of::all;
  // Of::automatic: as many as the memory needs. Only for settings: a search (plan/fit.h) replaces it.
  // Of::blocks: this many blocks, and the head if it is a unit of its own. Of::percent: the fewest units that have this
  // share of the elements of all units. The elements are the trainable ones, and for parameters, the elements of all
  // sections. At least 1.
  int64_t number = 0;
  bool operator==(const OffloadedPart&) const = default;
};

// The tiers that a run offloads to. `parameters` is for all sections. The gradients of a unit may be offloaded only if
// its optimizer states are offloaded.
struct Offload {
  Tier optimizer = Tier::device, gradients = Tier::device, parameters = Tier::device;
  OffloadedPart part_of_optimizer{}, part_of_gradients{}, part_of_parameters{};  // ignored if the tier is `device`

  bool any() const { return uses(Tier::host) || uses(Tier::file); }
  // Whether a search must still choose a part.
  bool has_automatic() const {
    using enum OffloadedPart::Of;
    return part_of_optimizer.of == automatic || part_of_gradients.of == automatic || part_of_parameters.of == automatic;
  }
  bool uses(Tier tier) const { return optimizer == tier || gradients == tier || parameters == tier; }
  bool operator==(const Offload&) const = default;
};

// micro: reduce gradients in every micro-batch. step: reduce them only in the last micro-batch of a step. automatic:
// micro if the strategy shards gradients or the gradients are offloaded, otherwise step.
enum class GradientSync { automatic, micro, step };
enum class BackwardPrefetch { pre, post, none };  // gather the next unit before (pre) or after (post) a unit's backward

// The first offloaded unit of each kind, in forward order. The units before it stay on the device.
struct OffloadedFrom {
  int64_t optimizer = 0, gradients = 0, parameters = 0;
  // The first unit with offloaded optimizer states that the host updates. The device updates the units before it.
  int64_t host_updates = 0;
};

struct ShardOptions {
  ShardingStrategy strategy = ShardingStrategy::no_shard;
  int shard_group_size = 0;  // for strategies with within_nodes; 0: as many ranks as a node has
  Offload offload;
  // The share of the offloaded optimizer states that the device updates: it copies them from host memory, and copies
  // the new states back, while the host updates the others. 0 to 100. The first units of the offloaded ones. Only for
  // states in host memory, if neither gradients nor parameters are in files.
  int64_t device_update_percent = 0;
  std::string file_folder;  // for Tier::file
  GradientSync gradient_sync = GradientSync::automatic;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = true;
  // The maximum number of blocks that are gathered at a time, if blocks are freed after forward or kept off the device.
  // Also the maximum number of slots for gradients of blocks.
  int max_units_in_flight = 2;
  int64_t bucket_bytes = int64_t{25} << 20;  // replicated gradients are reduced in pieces of about this size
  // Large arrays move between tiers in pieces of this size: enough for full speed, and small compared with a unit.
  int64_t piece_elems = int64_t{8} << 20;
  // Number of blocks whose moments an update in host memory writes late, during the next step (engine/late_moments.h).
  // Unset: on a GPU, measured times set the number; otherwise it is 0. Ignored if no moments may be late.
  std::optional<int64_t> late_blocks;
  std::optional<DType> reduce_dtype;  // type in which gradients are reduced; unset: their own type
  // Gather the blocks' weights in 8 bits where products read them so. Only if EngineOptions::float8 is set, the
  // strategy shards parameters, and they are on the device.
  bool gather_float8 = false;
  bool sync_module_states = false;  // only rank 0 reads the initial parameters; it sends them to the others
};

// The type of one micro-batch's gradients after backward, for a computation in `dtype`. It is `dtype`, except when
// 16-bit gradients are reduced in another type: then it is f32. Sums over several micro-batches are f64 if `dtype` is
// f64, and f32 otherwise. A 16-bit gradient that is the sum of several parts in a micro-batch is rounded once per part.
// The gradient of the head's weight, for example, has one part per chunk of logits.
inline DType gradient_dtype(DType dtype, std::optional<DType> reduce_dtype) {
  return size_of(dtype) == 2 && reduce_dtype.value_or(dtype) != dtype ? DType::f32 : dtype;
}

// Throws UsageError if the model has fewer blocks than the offload names, or if the gradients of a unit are offloaded,
// but its optimizer states are not.
OffloadedFrom offloaded_from(const ShardOptions& options, const Model& model);

// What is wrong with the options: the group size does not divide the number of ranks, or the offload of gradients
// contradicts their reduction.
std::optional<Fault> fault_of_ranks(const ShardOptions& options, int64_t world_size, int64_t ranks_per_node);
std::optional<Fault> fault_of_gradients(const ShardOptions& options);

// Elements [begin, end).
struct ElemRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  ElemRange clipped(int64_t most) const { return {std::min(begin, most), std::min(end, most)}; }
};

// How a section of a unit is cut into shards.
struct UnitShards {
  int64_t num_elems = 0;     // P: elements of the section, without the padding at the end of the last shards
  int64_t shard_elems = 0;   // s, a multiple of the alignment that ShardPlan::cut() got
  int64_t padded_elems = 0;  // S · s
  ElemRange own;             // this rank's range in the padded buffer

  // The same cut, counted in elements that hold `values` values each. The alignment is a multiple of `values`. The last
  // element may contain padding.
  UnitShards in_elements_of(int64_t values) const {
    return {ceil_divide(num_elems, values),
            shard_elems / values,
            padded_elems / values,
            {own.begin / values, own.end / values}};
  }
};

class ShardPlan {
 public:
  // Throws UsageError if the options have one of the faults above. `from` says which units are offloaded.
  ShardPlan(ShardOptions options, int world_size, int world_rank, int ranks_per_node, OffloadedFrom from = {});

  const ShardOptions& options() const { return options_; }
  int world_size() const { return world_size_; }
  int world_rank() const { return world_rank_; }
  int shard_group_size() const { return group_size_; }  // S
  int num_replicas() const { return world_size_ / group_size_; }
  int shard_rank() const { return world_rank_ % group_size_; }
  int replica() const { return world_rank_ / group_size_; }  // the number of this rank's shard group
  bool alone() const { return world_size_ == 1; }

  // The tier of an array of a unit between uses.
  Tier tier(ArrayKind kind, int64_t unit) const;

  // Whether the device updates a unit whose optimizer states are in host memory.
  bool streams_states(int64_t unit) const {
    return tier(ArrayKind::optimizer, unit) == Tier::host && unit < from_.host_updates;
  }

  bool shard_parameters() const { return row_.shard_parameters; }
  bool shard_optimizer() const { return row_.shard_optimizer; }
  bool free_after_forward() const { return row_.free_after_forward; }
  // Whether gradients leave the buffers of backward in every micro-batch, to be reduced or to move to another tier.
  bool reduce_every_micro_batch() const { return reduce_every_micro_batch_; }
  // Cuts a section into shards. The size of a shard is a multiple of `alignment`.
  UnitShards cut(int64_t num_elems, int64_t alignment = ParameterTable::kAlignment) const;
  // The part of a section that this rank updates: its shard, or all elements and the padding if the strategy does not
  // shard the optimizer.
  ElemRange updated(const UnitShards& section) const {
    return row_.shard_optimizer ? section.own : ElemRange{0, section.padded_elems};
  }
  // The part of a section that this rank keeps when no computation uses it: its shard, or all elements and the padding
  // if the strategy does not shard parameters.
  ElemRange kept(const UnitShards& section) const {
    return row_.shard_parameters ? section.own : ElemRange{0, section.padded_elems};
  }
  // The part of a section that this rank writes to a checkpoint. Exactly one rank writes each element. No rank writes
  // padding.
  ElemRange saved(const UnitShards& section) const;

 private:
  ShardOptions options_;
  OffloadedFrom from_;
  StrategyRow row_;
  int world_size_, world_rank_, group_size_;
  bool reduce_every_micro_batch_;
};

}  // namespace tessera
