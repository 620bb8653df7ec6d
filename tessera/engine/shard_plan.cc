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

OffloadedFrom offloaded_from(const ShardOptions& options, const Model& model) {
  const Offload& offload = options.offload;
  const int64_t num_blocks = model.num_blocks(), num_units = model.num_units();
  const auto first_of = [&](const char* kind, Tier tier, const OffloadedPart& part, auto&& elems_of) -> int64_t {
    if (tier == Tier::device) return num_units;
    if (part.of == OffloadedPart::Of::all) return 0;
    if (part.of == OffloadedPart::Of::automatic) {
      throw UsageError(option_place("offload"), fmt::format("auto for {} needs a run that is planned", kind),
                       fmt::format("Only train and plan choose how much to offload. Write a number of blocks, or only "
                                   "\"{}\"",
                                   kind));
    }
    if (part.of == OffloadedPart::Of::blocks) {
      if (part.number <= num_blocks) return 1 + num_blocks - part.number;
      throw UsageError(option_place("offload"),
                       fmt::format("{} are to be offloaded ({}), but the model has only {}",
                                   counted(part.number, "block"), kind, num_blocks),
                       fmt::format("Give at most {}, or write only \"{}\" to offload everything", num_blocks, kind));
    }
    int64_t all = 0, offloaded = 0;
    for (int64_t u = 0; u < num_units; ++u) all += elems_of(model.unit(u).table());
    int64_t first = num_units;
    while (first > 0 &&
           static_cast<double>(offloaded) * 100 < static_cast<double>(all) * static_cast<double>(part.number))
      offloaded += elems_of(model.unit(--first).table());
    return first;
  };
  const auto trained = [](const ParameterTable& table) { return table.num_elems(Section::trainable); };
  const auto every = [](const ParameterTable& table) { return table.num_parameters(); };
  OffloadedFrom from{first_of("optimizer", offload.optimizer, offload.part_of_optimizer, trained),
                     first_of("gradients", offload.gradients, offload.part_of_gradients, trained),
                     first_of("parameters", offload.parameters, offload.part_of_parameters, every)};
  from.host_updates = from.optimizer;
  if (offload.optimizer == Tier::host && !(offload.uses(Tier::file))) {
    int64_t all = 0, streamed = 0;
    for (int64_t u = from.optimizer; u < num_units; ++u) all += trained(model.unit(u).table());
    const double wanted = static_cast<double>(all) * static_cast<double>(options.device_update_percent) / 100;
    while (from.host_updates < num_units) {
      const int64_t elems = trained(model.unit(from.host_updates).table());
      if (static_cast<double>(streamed) + static_cast<double>(elems) / 2 >= wanted) break;
      streamed += elems;
      ++from.host_updates;
    }
  }
  if (from.gradients >= from.optimizer) return from;
  throw UsageError(option_place("offload"),
                   fmt::format("the gradients of {} would be offloaded, but the optimizer states of only {}",
                               counted(num_units - from.gradients, "unit"), num_units - from.optimizer),
                   "Give the gradients at most as many blocks, or the same share, as the optimizer");
}

ShardPlan::ShardPlan(ShardOptions options, int world_size, int world_rank, int ranks_per_node, OffloadedFrom from)
    : options_(std::move(options)),
      from_(from),
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
  switch (kind) {
    case ArrayKind::trainable:
    case ArrayKind::frozen:
      return unit >= from_.parameters ? offload.parameters : Tier::device;
    case ArrayKind::gradients:
      return unit >= from_.gradients ? offload.gradients : Tier::device;
    case ArrayKind::optimizer:
      return unit >= from_.optimizer ? offload.optimizer : Tier::device;
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
