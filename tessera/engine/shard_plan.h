// Who holds what: a strategy is a row of a table, and a ShardPlan that row for a world of ranks. Pure arithmetic.
//
// Letters: R ranks of the world, S ranks of a shard group, P elements of a unit, s elements of a rank's shard.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/dtype.h"
#include "tessera/model/parameter_table.h"

namespace tessera {

enum class ShardingStrategy { no_shard, zero1, zero2, shard_grad_op, full_shard, hybrid_shard, hybrid_shard_zero2 };

// What a rank of a shard group keeps, and when. ZeRO and FSDP in one table (shared words: docs/strategies.md).
struct StrategyRow {
  ShardingStrategy strategy;
  const char* name;
  bool shard_optimizer;     // AdamW's states, and the master parameters, for its shard alone
  bool shard_gradients;     // reduced gradients of its shard alone
  bool shard_parameters;    // parameters of its shard alone outside the computation; else whole units, for good
  bool free_after_forward;  // a block's gathered parameters go after its forward, and come again for its backward
  bool within_nodes;        // the shard group is a part of the world, and the parts hold copies of each other
};
const StrategyRow& row_of(ShardingStrategy strategy);

// Where a kind of array lives between its uses.
enum class Tier { device, host, file };
const char* name_of(Tier tier);

enum class GradientSync { automatic, micro, step };  // gradients are reduced in every micro-batch, or in a step's last
enum class BackwardPrefetch { pre, post, none };  // the next unit is gathered before, after the current one's backward

struct ShardOptions {
  ShardingStrategy strategy = ShardingStrategy::no_shard;
  int shard_group_size = 0;  // of strategies within nodes; 0: the ranks of a node
  Tier parameters = Tier::device, gradients = Tier::device, optimizer = Tier::device;
  std::string file_folder;  // of Tier::file
  GradientSync gradient_sync = GradientSync::automatic;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  bool forward_prefetch = true;
  int max_units_in_flight = 2;               // gathered blocks that exist at a time, where they are freed after forward
  int64_t bucket_bytes = int64_t{25} << 20;  // replicated gradients are reduced in pieces of about this size
  // Large arrays pass between tiers in pieces of so many elements: enough for full speed, little beside a unit.
  int64_t piece_elems = int64_t{8} << 20;
  // Blocks whose moments an update in the host's memory leaves for the next backward pass (engine/late_moments), where
  // it may; none: as many as fit there, on GPUs.
  std::optional<int64_t> late_blocks;
  std::optional<DType> reduce_dtype;  // in which gradients are added up; none: see gradient_dtype()
  bool sync_module_states = false;    // rank 0 alone reads the parameters that a run begins with

  bool offloads() const { return parameters != Tier::device || gradients != Tier::device || optimizer != Tier::device; }
};

// The type in which backward leaves the gradients of one micro-batch, for a computation in `dtype`: its own, unless
// gradients shall be added up in another, and what several micro-batches add up to is always of the masters' type. A
// gradient of 16 bits that has several parts in a micro-batch, as the embedding's has from the head's chunks, is
// rounded as often as it has parts.
inline DType gradient_dtype(DType dtype, std::optional<DType> reduce_dtype) {
  return size_of(dtype) == 2 && reduce_dtype.value_or(dtype) != dtype ? DType::f32 : dtype;
}

// A range of elements.
struct ElemRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  ElemRange clipped(int64_t most) const { return {std::min(begin, most), std::min(end, most)}; }
};

// How one unit's flat buffer is cut.
struct UnitShards {
  int64_t num_elems = 0;     // P, of the table
  int64_t shard_elems = 0;   // s, a multiple of ParameterTable::kAlignment
  int64_t padded_elems = 0;  // S · s
  ElemRange own;             // this rank's, in the padded buffer
};

class ShardPlan {
 public:
  // UsageError: ranks that a group of the asked size does not divide, options that exclude each other.
  ShardPlan(ShardOptions options, int world_size, int world_rank, int ranks_per_node);

  const ShardOptions& options() const { return options_; }
  int world_size() const { return world_size_; }
  int world_rank() const { return world_rank_; }
  int shard_group_size() const { return group_size_; }  // S
  int num_replicas() const { return world_size_ / group_size_; }
  int shard_rank() const { return world_rank_ % group_size_; }
  int replica() const { return world_rank_ / group_size_; }  // also the color of the shard group
  bool alone() const { return world_size_ == 1; }

  bool shard_parameters() const { return row_.shard_parameters; }
  bool shard_optimizer() const { return row_.shard_optimizer; }
  bool free_after_forward() const { return row_.free_after_forward; }
  // Gradients leave the backward pass in every micro-batch: to be reduced, or to another tier.
  bool reduce_every_micro_batch() const { return reduce_every_micro_batch_; }
  UnitShards cut(int64_t num_elems) const;
  // The part of a unit that this rank updates: its shard, or all of it.
  ElemRange updated(const UnitShards& unit) const {
    return row_.shard_optimizer ? unit.own : ElemRange{0, unit.padded_elems};
  }
  // The part of a unit that this rank writes to a checkpoint: over all ranks each element of the table once.
  ElemRange saved(const UnitShards& unit) const;

 private:
  ShardOptions options_;
  StrategyRow row_;
  int world_size_, world_rank_, group_size_;
  bool reduce_every_micro_batch_;
};

}  // namespace tessera
