// Declarations for sharding, offload, gradient reduction, loss scaling, and plans.
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
  return with_synonyms(
      choice("strategy", &S::strategy, brief(kSharding, "no_shard, zero1, zero2, full_shard, ...", kRanks), words,
             "Which of parameters, gradients and optimizer states to shard over the ranks (docs/strategies.md); zero0 "
             "means no_shard, zero3 means full_shard"),
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
          "Data to keep off the device between uses: none, or a list of optimizer, gradients, parameters. :host (or "
          ":cpu) after a word means host memory, the default; :file (or :nvme) means files in --offload-dir",
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
                   "DeepSpeed configuration file (JSON); it takes precedence over the TOML configuration file")),
      foreign(text("fsdp", &S::fsdp, kSharding, "WORDS",
                   "Value of the Trainer's option --fsdp, for example \"full_shard auto_wrap offload\"")),
      strategy(),
      integer("shard_group_size", &S::shard_group_size, kSharding, "RANKS", kCount,
              "Hybrid strategies: number of ranks that share one copy of the model; 0: the ranks of a node"),
      integer("ranks_per_node", &S::ranks_per_node, brief(kSharding, "ranks of one machine", kPlan), "RANKS", kCount,
              "Number of ranks on one machine. 0: the number that the run detects; tessera plan assumes all ranks on "
              "one machine"),
      with_synonyms(
          choice("backward_prefetch", &S::backward_prefetch, kSharding,
                 {{"pre", BackwardPrefetch::pre}, {"post", BackwardPrefetch::post}, {"none", BackwardPrefetch::none}},
                 "When the backward pass gathers the next unit. pre: before it computes the gradients of the current "
                 "unit; post: after it has computed them; none: when the computation needs the next unit"),
          {{"backward_pre", "pre"}, {"backward_post", "post"}, {"no_prefetch", "none"}}),
      boolean("forward_prefetch", &S::forward_prefetch, kSharding,
              "Gather the next unit of the forward pass while the current unit computes"),
      integer("max_units_in_flight", &S::max_units_in_flight, kSharding, "UNITS", {1, kMaxCount},
              "Maximum number of units gathered at the same time, including the one in use"),
      boolean("sync_module_states", &S::sync_module_states, kSharding,
              "Rank 0 reads the parameters and sends them to the other ranks; otherwise each rank reads its own part"),
      offload(),
      text("offload_dir", &S::offload_dir, kSharding, "PATH",
           "Folder for data that is offloaded to files; it is created if it is missing", {"nvme_path"}),
      boolean("pin_memory", &S::pin_memory, kSharding,
              "With a GPU, pin (page-lock) the host memory of offloaded data, as far as the host allows it"),
  };
}

std::vector<Setting> gradient_settings() {
  return {
      choice("grad_sync", &S::grad_sync, kGradients,
             {{"auto", GradientSync::automatic}, {"micro", GradientSync::micro}, {"step", GradientSync::step}},
             "When to reduce gradients over the ranks. micro: after every micro-batch; step: once per step; auto: "
             "micro if gradients are sharded or offloaded, otherwise step"),
      bytes("reduce_bucket_size", &S::reduce_bucket_size, kGradients, {.min = 1},
            "Bytes of gradients to reduce at a time, for replicated parameters"),
      choice("reduce_dtype", &S::reduce_dtype, kGradients,
             {{"auto", std::nullopt}, {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
             "Data type of gradients that are reduced over the ranks; auto: the type of --precision, or fp32 for sums "
             "over micro-batches"),
      real("loss_scale", &S::loss_scale, kGradients, "X", kNonNegativeReal,
           "Constant factor on the loss in fp16; 0: find and adjust the factor during training"),
      choice("loss_scale_rules", &S::loss_scale_rules, kGradients,
             {{"grad_scaler", LossScaleRules::grad_scaler}, {"deepspeed", LossScaleRules::deepspeed}},
             "How to adjust the loss scale: as PyTorch's GradScaler, or as DeepSpeed"),
      integer("initial_scale_power", &S::initial_scale_power, kGradients, "N", {0, 127},
              "The initial loss scale is 2 to the power N"),
      integer("loss_scale_window", &S::loss_scale_window, kGradients, "STEPS", kCount,
              "Number of steps without overflow until the loss scale doubles; 0: 2000 with --loss-scale-rules "
              "grad_scaler, 1000 with deepspeed",
              {"growth_interval"}),
      integer("loss_scale_hysteresis", &S::loss_scale_hysteresis, kGradients, "N", kCount,
              "Number of overflows until the loss scale is halved, with --loss-scale-rules deepspeed; 0: the default "
              "of DeepSpeed, 2"),
      real("min_loss_scale", &S::min_loss_scale, kGradients, "X", {.min = 0, .open_min = true},
           "Lowest loss scale, with --loss-scale-rules deepspeed"),
  };
}

Setting fit() {
  Setting setting = bytes(
      "fit", &S::fit, brief(kPlan, "find the fastest run in this memory per rank"), kNonNegativeReal,
      "Find the fastest strategy, offload, checkpointing and batch size that fit into this memory per rank (with "
      "--device cuda: of its GPU). auto, or --fit without a value: memory and disk of this machine; 0: plan the given "
      "settings");
  setting.unit = "SIZE|auto";
  setting.bare_value = "auto";
  setting.get = [](const S& s) {
    return SettingValue(s.fit == S::kThisMachine ? std::string("auto") : bytes_text(s.fit));
  };
  setting.set = [](S& s, const SettingValue& value) {
    const auto& text = std::get<std::string>(value);
    s.fit = text == "auto" ? S::kThisMachine : parse_bytes(text, "");
  };
  return setting;
}

std::vector<Setting> plan_settings() {
  return {
      fit(),
      bytes("device_memory", &S::device_memory, kPlan, kNonNegativeReal,
            "Memory per rank (with --device cuda: of its GPU) of another machine; 0: as on this machine"),
      bytes("host_memory", &S::host_memory, kPlan, kNonNegativeReal,
            "Host memory of a node, shared by its ranks. 0: as on this machine, or not checked if another limit of "
            "memory is given"),
      bytes("disk", &S::disk, kPlan, kNonNegativeReal,
            "Disk space of a node for offloaded files, shared by its ranks. 0: the free space on the disk of "
            "--offload-dir, or of --output-dir if --offload-dir is empty; not checked if a limit of memory is given"),
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
