#include "tessera/engine/shard_plan.h"

#include "tessera/base/counted.h"
#include "tessera/base/math.h"

#include <fmt/format.h>

#include <array>

namespace tessera {

using S = ShardingStrategy;

constexpr std::array<StrategyRow, 7> kStrategies = {{
    // Columns of true and false: shard_optimizer, shard_gradients, shard_parameters, free_after_forward, within_nodes
    {S::no_shard, "no_shard", false, false, false, false, false},
    {S::zero1, "zero1", true, false, false, false, false},
    {S::zero2, "zero2", true, true, false, false, false},
    {S::shard_grad_op, "shard_grad_op", true, true, true, false, false},
    {S::full_shard, "full_shard", true, true, true, true, false},
    {S::hybrid_shard, "hybrid_shard", true, true, true, true, true},
    {S::hybrid_shard_zero2, "hybrid_shard_zero2", true, true, true, false, true},
}};

std::span<const StrategyRow> strategy_rows() {
  return kStrategies;
}

const StrategyRow& row_of(ShardingStrategy strategy) {
  for (const StrategyRow& row : kStrategies) {
    if (row.strategy == strategy) return row;
  }
  assertion_failed("a strategy has a row", __FILE__, __LINE__);
}

const char* name_of(Tier tier) {
  constexpr const char* names[] = {"device", "host", "file"};
  return names[static_cast<size_t>(tier)];
}

namespace {

// S: the ranks of a shard group.
int64_t group_size(const ShardOptions& options, int64_t world_size, int64_t ranks_per_node) {
  if (!row_of(options.strategy).within_nodes) return world_size;
  return options.shard_group_size > 0 ? options.shard_group_size : ranks_per_node;
}

}  // namespace

std::optional<Fault> fault_of_ranks(const ShardOptions& options, int64_t world_size, int64_t ranks_per_node) {
  const int64_t size = group_size(options, world_size, ranks_per_node);
  if (world_size % size == 0) return {};
  return Fault{options.shard_group_size > 0 ? "shard_group_size" : "ranks_per_node",
               fmt::format("{} cannot be divided into groups of {}", counted(world_size, "rank"), size),
               "Give a divisor of the number of ranks"};
}

std::optional<Fault> fault_of_gradients(const ShardOptions& options) {
  if (options.offload.gradients == Tier::device || options.gradient_sync != GradientSync::step) return {};
  return Fault{"grad_sync",
               fmt::format("\"step\" keeps the gradients of a step on the device, but {} moves them to the host or to "
                           "a file",
                           option("offload")),
               fmt::format("Remove {}, or remove the gradients from {}", option("grad_sync"), option("offload"))};
}

ShardPlan::ShardPlan(ShardOptions options, int world_size, int world_rank, int ranks_per_node)
    : options_(std::move(options)),
      row_(row_of(options_.strategy)),
      world_size_(world_size),
      world_rank_(world_rank),
      group_size_(static_cast<int>(group_size(options_, world_size, ranks_per_node))) {
  TESSERA_ASSERT(world_rank >= 0 && world_rank < world_size);
  for (const auto& fault : {fault_of_ranks(options_, world_size, ranks_per_node), fault_of_gradients(options_)}) {
    if (fault) throw UsageError(option_place(fault->option), fault->what, fault->remedy);
  }
  const bool leave = options_.gradient_sync == GradientSync::automatic ? row_.shard_gradients
                                                                       : options_.gradient_sync == GradientSync::micro;
  reduce_every_micro_batch_ = options_.offload.gradients != Tier::device || (!alone() && leave);
}

Tier ShardPlan::tier(ArrayKind kind, int64_t unit) const {
  const Offload& offload = options_.offload;
  const ShardOptions::OffloadedUnits& units = options_.offloaded_units;
  switch (kind) {
    case ArrayKind::trainable:
    case ArrayKind::frozen:
      return unit < units.parameters ? offload.parameters : Tier::device;
    case ArrayKind::gradients:
      return unit < units.gradients ? offload.gradients : Tier::device;
    case ArrayKind::optimizer:
      return unit < units.optimizer ? offload.optimizer : Tier::device;
  }
  assertion_failed("a kind has a tier", __FILE__, __LINE__);
}

UnitShards ShardPlan::cut(int64_t num_elems, int64_t alignment) const {
  UnitShards section;
  section.num_elems = num_elems;
  section.shard_elems = round_up(ceil_divide(num_elems, group_size_), alignment);
  section.padded_elems = section.shard_elems * group_size_;
  section.own = {shard_rank() * section.shard_elems, (shard_rank() + 1) * section.shard_elems};
  return section;
}

ElemRange ShardPlan::saved(const UnitShards& section) const {
  // If the strategy shards the optimizer, num_replicas() ranks update the same shard, and each of them writes a part of
  // it. Otherwise each rank updates the complete section, and writes a part of it.
  const ElemRange held = updated(section).clipped(section.num_elems);
  const int64_t parts = row_.shard_optimizer ? num_replicas() : world_size_;
  const int64_t part = row_.shard_optimizer ? replica() : world_rank_;
  return {held.begin + held.size() * part / parts, held.begin + held.size() * (part + 1) / parts};
}

}  // namespace tessera
