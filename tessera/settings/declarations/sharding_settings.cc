// Declarations of ranks, sharding, offload, gradient reduction, loss scaling, and plans.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

std::vector<Setting> rank_settings() {
  return {
      integer("nproc", &S::nproc, determines(kTheStep, brief(kRanks, "ranks to start on this machine, or to plan for")),
              "N", {0, 1 << 20},
              "Number of ranks to start on this machine, or to plan for; 0: the ranks of torchrun, mpirun or srun, "
              "otherwise 1",
              {"nproc_per_node", "num_processes"}),
      real("comm_timeout", &S::comm_timeout, kRanks, "SECONDS", {.min = 0, .max = 1e8, .open_min = true},
           "Seconds that a rank waits for another rank before the run fails", {"ddp_timeout"}),
      integer("max_restarts", &S::max_restarts, kRanks, "N", kCount,
              "With --nproc: maximum number of restarts from the last checkpoint after a failure"),
      real("restart_pause", &S::restart_pause, kRanks, "SECONDS", {.min = 0, .max = 86400},
           "Seconds before the first restart; each further restart waits twice as long, up to 300 s"),
  };
}

Setting strategy() {
  std::vector<std::pair<const char*, ShardingStrategy>> words;
  for (const StrategyRow& row : strategy_rows()) words.emplace_back(row.name, row.strategy);
  return with_words(
      choice("strategy", &S::strategy, brief(kSharding, "no_shard, zero1, zero2, full_shard, ...", kRanks), words,
             "Which of parameters, gradients and optimizer states to shard over the ranks (docs/strategies.md); zero0 "
             "means no_shard, zero3 means full_shard"),
      {{"zero0", row_of(ShardingStrategy::no_shard).name},
       {"zero3", row_of(ShardingStrategy::full_shard).name},
       {"_hybrid_shard_zero2", row_of(ShardingStrategy::hybrid_shard_zero2).name}});
}

std::vector<Setting> placement_settings() {
  return {
      for_others(text("deepspeed", &S::deepspeed, kSharding, "PATH",
                      "DeepSpeed configuration file (JSON); it takes precedence over the TOML configuration file")),
      for_others(text("fsdp", &S::fsdp, kSharding, "WORDS",
                      "Value of the Trainer's option --fsdp, for example \"full_shard auto_wrap offload\"")),
      strategy(),
      integer("shard_group_size", &S::shard_group_size, kSharding, "RANKS", kCount,
              "Hybrid strategies: number of ranks that share one copy of the model; 0: the ranks of a node"),
      integer("ranks_per_node", &S::ranks_per_node, brief(kSharding, "ranks of one machine", kPlanOutput), "RANKS",
              kCount,
              "Number of ranks on one machine. 0: the number that the run detects; tessera plan assumes all ranks on "
              "one machine"),
      with_words(
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
      parsed("offload", &S::offload, kSharding, "WHAT[:WHERE][=MUCH],...",
             "Data to keep off the device between uses: none, or a list of optimizer, gradients, parameters. :host (or "
             ":cpu) after a word means host memory, the default; :file (or :nvme) means files in --offload-dir. =12 "
             "offloads only the last 12 blocks, and =40% only this share",
             parse_offload, offload_text),
      integer("device_updates", &S::device_updates, kSharding, "PERCENT", {0, 100},
              "Share of the optimizer states in host memory that the GPU updates: it copies them in, and the new ones "
              "back, while the CPU updates the others"),
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
  Setting setting = parsed(
      "fit", &S::fit, brief(kPlan, "find the fastest run in this memory per rank"), "SIZE|auto",
      "Find the fastest strategy, offload, checkpointing and batch size that fit into this memory per rank (with "
      "--device cuda: of its GPU). auto, or --fit without a value: memory and disk of this machine (or of the GPU "
      "that --machine names); 0: keep the given settings",
      [](const std::string& text, const std::string& where) {
        return lower(text) == "auto" ? S::kThisMachine : parse_bytes(text, where);
      },
      [](int64_t bytes) { return bytes == S::kThisMachine ? "auto" : bytes_text(bytes); });
  setting.type = SettingType::bytes;
  setting.bare_value = "auto";
  return setting;
}

std::vector<Setting> plan_settings() {
  return {
      fit(),
      bytes("device_memory", &S::device_memory, kPlan, kNonNegativeReal,
            "Memory per rank (with --device cuda: of its GPU) that the run may use; 0: all that this machine has"),
      bytes(
          "host_memory", &S::host_memory, kPlan, kNonNegativeReal,
          "Host memory of a node that the run may use, shared by its ranks. 0: all that this machine has; a plan with "
          "another limit of memory does not check it"),
      bytes("disk", &S::disk, kPlan, kNonNegativeReal,
            "Disk space of a node for offloaded files, shared by its ranks. 0: the free space on the disk of "
            "--offload-dir, or of --output-dir if --offload-dir is empty; a plan with a limit of memory does not check "
            "it"),
      text("machine", &S::machine, brief(kPlan, "predict times for this machine", kPlanOutput), "FILE|GPU",
           "Machine whose speeds determine the predicted times: a file that tessera doctor --measure has written, or a "
           "GPU whose data sheet is known (v100-16, v100-32, a100-40, a100-80, h100-80, h200, l40s, rtx-4090). A GPU "
           "also sets the memory per rank, unless another setting does. Empty: this machine"),
      boolean("categories", &S::categories, kPlanOutput, "Show the planned memory by category"),
      list("compare", &S::compare, kPlanOutput, "FILE...",
           "Compare this plan with those in these files, which plan --json has written. Without --model, compare the "
           "files with each other"),
      text("svg", &S::svg, brief(kPlanOutput, "draw the memory over a training step"), "FILE",
           "Also write a picture of the memory of rank 0 over one training step, by category"),
  };
}

}  // namespace

std::vector<Setting> sharding_settings() {
  std::vector<Setting> all;
  for (auto* part : {rank_settings, placement_settings, gradient_settings, plan_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace tessera::declaring
