// Declarations: what ranks share, where it lies, how gradients are added up and scaled, and what a plan is made for.
#include <cmath>

#include "tessera/settings/setting_declarations.h"

namespace tessera::declaring {

namespace {

Setting with_synonyms(Setting setting, std::vector<std::pair<std::string, std::string>> synonyms) {
  setting.synonyms = std::move(synonyms);
  return setting;
}

Setting foreign(Setting setting) {
  setting.stands_for_others = true;
  return setting;
}

Setting strategy() {
  std::vector<std::pair<const char*, ShardingStrategy>> words;
  for (const StrategyRow& row : strategy_rows()) words.emplace_back(row.name, row.strategy);
  return with_synonyms(choice("strategy", &S::strategy, kSharding, words,
                              "what the ranks share of parameters, gradients and optimizer states; zero0 is no_shard, "
                              "zero3 is full_shard"),
                       {{"zero0", row_of(ShardingStrategy::no_shard).name},
                        {"zero3", row_of(ShardingStrategy::full_shard).name},
                        {"_hybrid_shard_zero2", row_of(ShardingStrategy::hybrid_shard_zero2).name}});
}

Setting offload() {
  Setting setting{
      .name = "offload",
      .group = kSharding,
      .type = SettingType::text,
      .unit = "WHAT[:WHERE],...",
      .help =
          "what lies outside of the device between its uses: none, or of optimizer, gradients, parameters those "
          "named, each :host (cpu) or :file (nvme)",
      .get = [](const S& s) { return SettingValue(offload_text(s.offload)); },
      .set = [](S& s, const SettingValue& value) { s.offload = parse_offload(std::get<std::string>(value), ""); }};
  setting.canonical = [](const std::string& text, const std::string& where) {
    return offload_text(parse_offload(text, where));
  };
  return setting;
}

std::vector<Setting> placement_settings() {
  return {
      foreign(text("deepspeed", &S::deepspeed, kSharding, "PATH",
                   "a configuration of DeepSpeed (JSON), which goes before the configuration file")),
      foreign(
          text("fsdp", &S::fsdp, kSharding, "WORDS", "the Trainer's option, as in \"full_shard auto_wrap offload\"")),
      strategy(),
      integer("shard_group_size", &S::shard_group_size, kSharding, "RANKS", kCount,
              "ranks that share one copy in the hybrid strategies; 0: the ranks of a node"),
      integer("ranks_per_node", &S::ranks_per_node, kSharding, "RANKS", kCount,
              "ranks of one machine; 0: as found, for a plan all on one"),
      with_synonyms(
          choice("backward_prefetch", &S::backward_prefetch, kSharding,
                 {{"pre", BackwardPrefetch::pre}, {"post", BackwardPrefetch::post}, {"none", BackwardPrefetch::none}},
                 "gather the next unit of the backward pass before the current one's gradients are computed, "
                 "after it, or when it is needed"),
          {{"backward_pre", "pre"}, {"backward_post", "post"}, {"no_prefetch", "none"}}),
      boolean("forward_prefetch", &S::forward_prefetch, kSharding,
              "gather the next unit of the forward pass while the current one computes"),
      integer("max_units_in_flight", &S::max_units_in_flight, kSharding, "UNITS", {1, kMaxCount},
              "units gathered at a time at most, the one in use among them"),
      boolean("sync_module_states", &S::sync_module_states, kSharding,
              "rank 0 reads the parameters and sends them, instead of every rank reading its own"),
      offload(),
      text("offload_dir", &S::offload_dir, kSharding, "PATH",
           "folder of what is offloaded to files, made where it is missing", {"nvme_path"}),
      boolean("pin_memory", &S::pin_memory, kSharding, "lock what is offloaded to the host in its memory"),
  };
}

std::vector<Setting> gradient_settings() {
  return {
      choice("grad_sync", &S::grad_sync, kGradients,
             {{"auto", GradientSync::automatic}, {"micro", GradientSync::micro}, {"step", GradientSync::step}},
             "add gradients up among ranks after every micro-batch, or once a step"),
      bytes("reduce_bucket_size", &S::reduce_bucket_size, kGradients, {.min = 1},
            "gradients of replicated parameters that are added up at a time"),
      choice(
          "reduce_dtype", &S::reduce_dtype, kGradients,
          {{"auto", std::nullopt}, {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
          "type in which gradients are added up among ranks; auto: that of --precision, and fp32 once they have been "
          "added up over micro-batches"),
      real("loss_scale", &S::loss_scale, kGradients, "X", kNonNegativeReal,
           "factor on the loss in fp16; 0: found and adjusted while training"),
      choice("loss_scale_rules", &S::loss_scale_rules, kGradients,
             {{"grad_scaler", LossScaleRules::grad_scaler}, {"deepspeed", LossScaleRules::deepspeed}},
             "how the scale is adjusted: as PyTorch's GradScaler does, or as DeepSpeed"),
      integer("initial_scale_power", &S::initial_scale_power, kGradients, "N", {0, 127},
              "the scale starts at 2 to this power"),
      integer("loss_scale_window", &S::loss_scale_window, kGradients, "STEPS", kCount,
              "steps without overflow after which the scale doubles; 0: as the rules, 2000 or DeepSpeed's 1000",
              {"growth_interval"}),
      integer("loss_scale_hysteresis", &S::loss_scale_hysteresis, kGradients, "N", kCount,
              "overflows at which the scale is halved under DeepSpeed's rules; 0: as the rules, 1 or DeepSpeed's 2"),
      real("min_loss_scale", &S::min_loss_scale, kGradients, "X", {.min = 0, .open_min = true},
           "the scale does not fall below, under DeepSpeed's rules"),
  };
}

std::vector<Setting> plan_settings() {
  return {
      bytes(
          "fit", &S::fit, kPlan, kNonNegativeReal,
          "find the fastest strategy, batch and checkpointing that fit into so much memory of a rank (of its GPU with "
          "--device cuda); 0: plan as given"),
      bytes("device_memory", &S::device_memory, kPlan, kNonNegativeReal,
            "what a rank has (its GPU with --device cuda); 0: what this machine has"),
      bytes("host_memory", &S::host_memory, kPlan, kNonNegativeReal,
            "memory of a node, which its ranks share; 0: what this machine has"),
      bytes("disk", &S::disk, kPlan, kNonNegativeReal,
            "room of a node for what is offloaded to files, which its ranks share; 0: what is free where --offload-dir "
            "is, else the output folder"),
  };
}

}  // namespace

std::vector<Setting> sharding_settings() {
  std::vector<Setting> all;
  for (auto* part : {placement_settings, gradient_settings, plan_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace tessera::declaring

namespace tessera {

LossScaleOptions Settings::loss_scaling() const {
  const bool is_deepspeed = loss_scale_rules == LossScaleRules::deepspeed;
  const auto or_default = [](int64_t value, int64_t preset) { return value > 0 ? value : preset; };
  return {.rules = loss_scale_rules,
          .fixed_scale = loss_scale,
          .initial_scale = std::ldexp(1.0, static_cast<int>(initial_scale_power)),
          .window = or_default(loss_scale_window, is_deepspeed ? 1000 : 2000),
          .hysteresis = or_default(loss_scale_hysteresis, is_deepspeed ? 2 : 1),
          .min_scale = min_loss_scale};
}

}  // namespace tessera
