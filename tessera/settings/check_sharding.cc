// Checks that sharding, offload and loss scaling do not contradict each other.
#include <fmt/format.h>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"

namespace tessera {

namespace {

using S = Settings;

std::string word_of(const ResolvedSettings& resolved, const char* name) {
  return std::get<std::string>(find_setting(name)->get(resolved.settings));
}

void check_offload(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  const StrategyRow& strategy = row_of(s.strategy);
  if (s.offload.parameters != Tier::device && !strategy.shard_parameters) {
    throw UsageError(
        resolved.where("offload"),
        fmt::format("only sharded parameters can be offloaded, but the strategy \"{}\" does not shard them",
                    word_of(resolved, "strategy")),
        "Give --strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2");
  }
  if (s.offload.gradients != Tier::device && s.offload.optimizer == Tier::device) {
    throw UsageError(resolved.where("offload"), "gradients can be offloaded only together with the optimizer",
                     "Give --offload optimizer,gradients");
  }
  if (s.offload.optimizer != Tier::device && !strategy.shard_optimizer && resolved.num_ranks > 1) {
    throw UsageError(resolved.where("offload"),
                     fmt::format("with {} ranks, the optimizer states can be offloaded only if they are sharded, but "
                                 "the strategy \"{}\" does not shard them",
                                 resolved.num_ranks, word_of(resolved, "strategy")),
                     "Give --strategy zero1, zero2, zero3, or a sharding strategy of FSDP");
  }
  if (s.offload.uses(Tier::file) && s.offload_dir.empty()) {
    throw UsageError(resolved.where("offload"),
                     fmt::format("\"{}\" needs a folder for its files", word_of(resolved, "offload")),
                     "Give --offload-dir with a folder on a fast local disk");
  }
}

void check_groups(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.shard_group_size == 0) return;
  if (!row_of(s.strategy).within_nodes) {
    throw UsageError(resolved.where("shard_group_size"),
                     fmt::format("{} has no effect with the strategy \"{}\", because all ranks form one group",
                                 s.shard_group_size, word_of(resolved, "strategy")),
                     "Give --strategy hybrid_shard or hybrid_shard_zero2, or remove this setting");
  }
  if (resolved.num_ranks % s.shard_group_size != 0) {
    throw UsageError(
        resolved.where("shard_group_size"),
        fmt::format("{} cannot be divided into groups of {}", counted(resolved.num_ranks, "rank"), s.shard_group_size),
        "Give a divisor of the number of ranks");
  }
}

void check_loss_scale(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (s.loss_scale > 0 && s.precision != S::Precision::fp16) {
    throw UsageError(
        resolved.where("loss_scale"),
        fmt::format("{} applies only to fp16, but the precision is {}", s.loss_scale, word_of(resolved, "precision")),
        "Give --precision fp16, or remove this setting");
  }
  if (s.loss_scale_rules == LossScaleRules::grad_scaler) {
    const S defaults;
    const auto refuse = [&](const char* name, const std::string& value) {
      throw UsageError(
          resolved.where(name),
          fmt::format("{} applies only to DeepSpeed's rules, but loss_scale_rules is \"grad_scaler\"", value),
          "Give --loss-scale-rules deepspeed, or remove this setting");
    };
    if (s.loss_scale_hysteresis > 1) refuse("loss_scale_hysteresis", fmt::format("{}", s.loss_scale_hysteresis));
    if (s.min_loss_scale != defaults.min_loss_scale) refuse("min_loss_scale", fmt::format("{}", s.min_loss_scale));
  }
}

}  // namespace

void check_sharding(const ResolvedSettings& resolved) {
  if (resolved.groups & kSharding) {
    if (resolved.settings.fit == 0) check_offload(resolved);  // --fit itself checks each offload that it tries
    check_groups(resolved);
  }
  if (resolved.groups & kGradients) check_loss_scale(resolved);
}

}  // namespace tessera
