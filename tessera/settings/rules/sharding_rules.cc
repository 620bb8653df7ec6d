// Rules about sharding, offload and the loss scale. The rules about the ranks and the gradients of a ShardPlan are in
// engine/shard_plan.cc.
#include "tessera/settings/rules/sharding_rules.h"

#include <fmt/format.h>

#include "tessera/settings/engine_options.h"
#include "tessera/settings/rules/rules.h"

namespace tessera {

namespace {

using S = Settings;

std::string word_of(const Settings& settings, const char* name) {
  return plain_text(find_setting(name)->get(settings));
}

std::optional<Fault> fault_of_offload(const Settings& s, int64_t num_ranks) {
  const StrategyRow& strategy = row_of(s.strategy);
  if (s.offload.parameters != Tier::device && !strategy.shard_parameters) {
    return Fault{"offload",
                 fmt::format("only sharded parameters can be offloaded, but the strategy \"{}\" does not shard them",
                             strategy.name),
                 "Give --strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2"};
  }
  if (s.offload.gradients != Tier::device && s.offload.optimizer == Tier::device) {
    return Fault{"offload", "gradients can be offloaded only together with the optimizer",
                 "Give --offload optimizer,gradients"};
  }
  if (s.offload.optimizer != Tier::device && !strategy.shard_optimizer && num_ranks > 1) {
    return Fault{"offload",
                 fmt::format("with {} ranks, the optimizer states can be offloaded only if they are sharded, but "
                             "the strategy \"{}\" does not shard them",
                             num_ranks, strategy.name),
                 "Give --strategy zero1, zero2, zero3, or a sharding strategy of FSDP"};
  }
  if (s.device_updates > 0 && (s.offload.optimizer != Tier::host || s.offload.uses(Tier::file))) {
    return Fault{"device_updates",
                 fmt::format("{} needs optimizer states in host memory and nothing in files, but the offload is \"{}\"",
                             s.device_updates, word_of(s, "offload")),
                 "Give --offload optimizer:host, or remove this setting"};
  }
  if (s.offload.uses(Tier::file) && s.offload_dir.empty()) {
    return Fault{"offload", fmt::format("\"{}\" needs a folder for its files", word_of(s, "offload")),
                 "Give --offload-dir with a folder on a fast local disk"};
  }
  return {};
}

std::optional<Fault> fault_of_gathered_type(const Settings& s) {
  if (s.gather_dtype != S::GatherDtype::fp8) return {};
  if (s.matmul_precision != S::MatmulPrecision::fp8) {
    return Fault{"gather_dtype",
                 fmt::format("\"fp8\" needs products in fp8, but the matmul_precision is \"{}\"",
                             word_of(s, "matmul_precision")),
                 "Give --matmul-precision fp8, or remove this setting"};
  }
  return {};
}

std::optional<Fault> fault_of_gathering(const Settings& s) {
  if (s.gather_dtype != S::GatherDtype::fp8) return {};
  if (!row_of(s.strategy).shard_parameters) {
    return Fault{
        "gather_dtype",
        fmt::format("only sharded parameters are gathered for products, but the strategy \"{}\" does not shard "
                    "them",
                    row_of(s.strategy).name),
        "Give --strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2, or remove this setting"};
  }
  if (s.offload.parameters != Tier::device) {
    return Fault{
        "gather_dtype",
        fmt::format("\"fp8\" needs parameters on the device, but the offload is \"{}\"", word_of(s, "offload")),
        "Leave parameters out of --offload, or remove this setting"};
  }
  return {};
}

std::optional<Fault> fault_of_groups(const Settings& s, int64_t num_ranks, int64_t ranks_per_node) {
  if (s.shard_group_size > 0 && !row_of(s.strategy).within_nodes) {
    return Fault{"shard_group_size",
                 fmt::format("{} has no effect with the strategy \"{}\", because all ranks form one group",
                             s.shard_group_size, row_of(s.strategy).name),
                 "Give --strategy hybrid_shard or hybrid_shard_zero2, or remove this setting"};
  }
  return fault_of_ranks(engine_options(s).sharding, num_ranks, ranks_per_node);
}

// With --fit, the search asks fault_of_sharding() about each strategy and offload that it tries.
std::optional<Fault> contradicting_offload(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kSharding) || s.fit != 0) return {};
  const auto fault = fault_of_offload(s, resolved.num_ranks);
  return fault ? fault : fault_of_gradients(engine_options(s).sharding);
}

std::optional<Fault> contradicting_gathering(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kOptimization)) return {};
  const auto fault = fault_of_gathered_type(s);
  return fault || s.fit != 0 ? fault : fault_of_gathering(s);
}

// The ranks of a node are not known yet, unless a group is given.
std::optional<Fault> contradicting_groups(const ResolvedSettings& resolved) {
  if (!(resolved.groups & kSharding)) return {};
  return fault_of_groups(resolved.settings, resolved.num_ranks, resolved.num_ranks);
}

std::optional<Fault> loss_scale_of_another_precision(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kGradients) || s.loss_scale == 0 || s.precision == S::Precision::fp16) return {};
  return Fault{"loss_scale",
               fmt::format("{} applies only to fp16, but the precision is {}", s.loss_scale, word_of(s, "precision")),
               "Give --precision fp16, or remove this setting"};
}

std::optional<Fault> loss_scale_of_deepspeed(const ResolvedSettings& resolved) {
  const S& s = resolved.settings;
  if (!(resolved.groups & kGradients) || s.loss_scale_rules != LossScaleRules::grad_scaler) return {};
  const bool hysteresis = s.loss_scale_hysteresis > 1;
  if (!hysteresis && s.min_loss_scale == S().min_loss_scale) return {};
  return Fault{
      hysteresis ? "loss_scale_hysteresis" : "min_loss_scale",
      fmt::format("{} applies only to DeepSpeed's rules, but loss_scale_rules is \"grad_scaler\"",
                  hysteresis ? fmt::format("{}", s.loss_scale_hysteresis) : fmt::format("{}", s.min_loss_scale)),
      "Give --loss-scale-rules deepspeed, or remove this setting"};
}

}  // namespace

std::optional<Fault> fault_of_sharding(const Settings& settings, int64_t num_ranks, int64_t ranks_per_node) {
  if (auto fault = fault_of_offload(settings, num_ranks)) return fault;
  if (auto fault = fault_of_gradients(engine_options(settings).sharding)) return fault;
  if (auto fault = fault_of_gathering(settings)) return fault;
  return fault_of_groups(settings, num_ranks, ranks_per_node);
}

std::span<const Rule> sharding_rules() {
  static constexpr Rule kRules[] = {contradicting_offload, contradicting_gathering, contradicting_groups,
                                    loss_scale_of_another_precision, loss_scale_of_deepspeed};
  return kRules;
}

}  // namespace tessera
