// Tests how arguments of Hugging Face's Trainer set Tessera's settings. For example, fp16 and bf16 set precision. Also
// tests train_size_per_rank, and FSDP's settings in a JSON file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/settings/foreign/foreign_arguments.h"
#include "tessera/settings/resolve.h"

namespace tessera {
namespace {

using Flags = std::vector<std::pair<std::string, std::string>>;
using S = Settings;

ResolvedSettings resolved(const std::string& toml, const Flags& flags = {}, int64_t num_ranks = 1) {
  SettingSources sources{.flags = {}, .environment = {}, .file = parse_config(toml, "c"), .num_ranks = num_ranks};
  for (const auto& [name, text] : flags) sources.flags.emplace_back(find_setting(name), text);
  return resolve(sources, kAllGroups, "train", {"train"});
}

std::string error(const std::string& toml, const Flags& flags = {}) {
  try {
    check_consistent(resolved(toml, flags));
  } catch (const UsageError& caught) {
    return caught.what();
  }
  return "";
}

TEST(TrainerWords, Precision) {
  const auto precision = [](const std::string& toml, const Flags& flags = {}) {
    return resolved(toml, flags).settings.precision;
  };
  EXPECT_EQ(precision("fp16 = true"), S::Precision::fp16);
  EXPECT_EQ(precision("fp16 = false\nbf16 = true"), S::Precision::bf16);
  EXPECT_EQ(precision("fp16 = false\nbf16 = false"), S::Precision::fp32);
  EXPECT_EQ(precision("fp16 = true", {{"precision", "fp32"}}), S::Precision::fp32);
  EXPECT_EQ(precision("precision = \"bf16\"", {{"fp16", "true"}}), S::Precision::fp16);
  EXPECT_EQ(precision("fp16 = true", {{"bf16", "true"}}), S::Precision::bf16);
  EXPECT_EQ(precision("fp16 = true", {{"fp16", "false"}}), S::Precision::automatic);
  EXPECT_EQ(precision("", {{"fp16", "true"}, {"bf16", "false"}}), S::Precision::fp16);
  EXPECT_EQ(precision("precision = \"bf16\"", {{"fp16", "true"}, {"bf16", "false"}}), S::Precision::fp16);
  EXPECT_EQ(precision("bf16 = false"), S::Precision::fp32);  // `auto` may become bf16
  EXPECT_EQ(precision("bf16 = false", {{"precision", "auto"}}), S::Precision::automatic);
  EXPECT_EQ(precision("precision = \"auto\"", {{"bf16", "false"}}), S::Precision::fp32);
  EXPECT_EQ(precision("mixed_precision = \"no\""), S::Precision::fp32);
  EXPECT_EQ(precision("precision = \"bf16\"", {{"fp16", "false"}}), S::Precision::bf16);
  // The Trainer's `fp16 = false` does not switch off the mixed precision that FSDP's settings contain.
  EXPECT_EQ(precision("fp16 = false\n[fsdp_config]\nmixed_precision = {param_dtype = \"float16\"}"),
            S::Precision::fp16);
  EXPECT_EQ(resolved("", {{"bf16", "true"}}).origins.at("precision").to_string(), "flag --bf16");
  EXPECT_EQ(error("fp16 = true\nbf16 = true"), "c:1: fp16: true contradicts c:2: bf16 true. Give only one of the two");
  EXPECT_EQ(error("fp16 = true\nprecision = \"bf16\""),
            "c:1: fp16: true contradicts c:2: precision \"bf16\". Give only one of the two");
}

TEST(TrainerWords, Others) {
  EXPECT_EQ(resolved("gradient_checkpointing = true").settings.activation_checkpointing,
            Recomputation{.blocks = kAllBlocks});
  EXPECT_EQ(resolved("gradient_checkpointing = true", {{"activation_checkpointing", "none"}})
                .settings.activation_checkpointing,
            Recomputation{});
  EXPECT_EQ(resolved("optim = \"adamw_torch_fused\"").settings.optim, "adamw_torch");
  EXPECT_EQ(error("optim = \"adafactor\""), "c:1: optim: unknown value \"adafactor\". Use adamw_torch");
  EXPECT_EQ(error("report_to = \"none\""), "");
  EXPECT_NE(error("report_to = \"mlflow\"").find("c:1: report_to"), std::string::npos);
  EXPECT_EQ(resolved("max_train_samples = 3\nmodel_name_or_path = \"m\"").settings.train_size, 3);
}

// All arguments of the Trainer (transformers 5.24) are settings, or have an answer. The program's answers name only
// settings that exist.
TEST(TrainerWords, EveryArgumentHasAnAnswer) {
  std::istringstream names(
      "output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_type "
      "lr_scheduler_kwargs warmup_steps optim optim_args weight_decay adam_beta1 adam_beta2 adam_epsilon "
      "optim_target_modules gradient_accumulation_steps average_tokens_across_devices max_grad_norm "
      "label_smoothing_factor bf16 fp16 bf16_full_eval fp16_full_eval tf32 activation_checkpointing "
      "activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs torch_compile "
      "torch_compile_backend torch_compile_mode use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha "
      "torch_empty_cache_steps auto_find_batch_size logging_strategy logging_steps logging_first_step log_on_each_node "
      "logging_nan_inf_filter include_num_input_tokens_seen log_level log_level_replica disable_tqdm report_to "
      "run_name "
      "project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy eval_steps eval_delay "
      "per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object "
      "eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_strategy save_steps "
      "save_on_each_node save_total_limit enable_jit_checkpoint push_to_hub hub_token hub_private_repo hub_model_id "
      "hub_strategy hub_always_push hub_revision load_best_model_at_end metric_for_best_model greater_is_better "
      "ignore_data_skip restore_callback_states_from_checkpoint full_determinism seed data_seed use_cpu "
      "accelerator_config parallelism_config dataloader_drop_last dataloader_num_workers dataloader_pin_memory "
      "dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order "
      "remove_unused_columns label_names train_sampling_strategy length_column_name ddp_find_unused_parameters "
      "ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout fsdp fsdp_config deepspeed "
      "debug "
      "skip_memory_metrics do_train do_eval do_predict resume_from_checkpoint local_rank "
      // of transformers 4, TRL, PEFT and bitsandbytes
      "warmup_ratio evaluation_strategy logging_dir overwrite_output_dir no_cuda save_safetensors group_by_length "
      "use_peft lora_r lora_alpha lora_dropout lora_target_modules load_in_4bit load_in_8bit packing "
      "attn_implementation "
      "torch_dtype trust_remote_code");
  std::set<std::string> answers;
  for (std::string name; names >> name;) {
    const ForeignArgument* foreign = find_foreign_argument(name);
    EXPECT_NE(find_setting(name) == nullptr, foreign == nullptr) << name;
    if (foreign) answers.insert(foreign->answer);
  }
  for (const Setting& setting : all_settings()) {
    for (const auto& [word, remedy] : setting.refused) answers.insert(remedy);
  }
  const std::regex flag("--([a-z0-9-]+)");
  for (const std::string& text : answers) {
    for (auto it = std::sregex_iterator(text.begin(), text.end(), flag); it != std::sregex_iterator(); ++it) {
      const std::string name = (*it)[1];
      const bool is_known = find_setting(name) || (name.starts_with("no-") && find_setting(name.substr(3)));
      EXPECT_TRUE(is_known || name == "local-dir") << text;  // an option of `hf download`
    }
  }
}

TEST(TrainerWords, ArgumentsThatAreNoSettings) {
  const ResolvedSettings r = resolved("dataloader_num_workers = 4\nlabel_smoothing_factor = 0.0\ndo_train = true");
  EXPECT_EQ(r.warnings.size(), 3u);
  EXPECT_EQ(r.warnings[0].find("c:1: dataloader_num_workers: has no effect. Tessera reads"), 0u) << r.warnings[0];
  EXPECT_NE(error("label_smoothing_factor = 0.1").find("is not a setting of Tessera. Label smoothing"),
            std::string::npos);
  EXPECT_NE(error("load_in_4bit = true").find("--base-dtype nf4"), std::string::npos);
  EXPECT_EQ(error("load_in_4bit = false"), "");
}

TEST(TrainerWords, ParametersOfSchedules) {
  const auto rate = [](const std::string& toml, const Flags& flags = {}) {
    return resolved(toml, flags).settings.min_lr;
  };
  EXPECT_EQ(rate("lr = 0.01\nmin_lr_rate = 0.1"), 0.1 * 0.01);
  EXPECT_EQ(rate("lr_scheduler_kwargs = '{\"min_lr\": 1e-6, \"power\": null}'"), 1e-6);
  EXPECT_EQ(rate("lr_scheduler_type = \"polynomial\""), 1e-7);
  EXPECT_EQ(rate("lr_scheduler_type = \"polynomial\"\nmin_lr = 0"), 0);
  EXPECT_EQ(rate("lr_scheduler_kwargs = '{\"min_lr\": 1e-6}'", {{"min_lr", "2e-6"}}), 2e-6);
  for (const auto& [toml, message] : {
           std::pair{"min_lr = 1e-6\nmin_lr_rate = 0.1", "Give only one of the two"},
           {"lr_schedule = \"cosine_with_min_lr\"", "needs the lowest rate. Give --min-lr"},
           {"lr_schedule = \"warmup_stable_decay\"", "needs the length of the decay. Give --num-decay-steps"},
           {"lr_schedule = \"polynomial\"\nlr = 1e-8", "1e-07, the default of polynomial, is greater than the peak"},
           {"lr_scheduler_kwargs = '{\"last_epoch\": 1}'",
            "last_epoch: is not a parameter of a schedule. Use one of: "},
           {"lr_scheduler_kwargs = '{\"power\": \"high\"}'", "lr_scheduler_kwargs: power: must be a number"},
           {"lr_scheduler_kwargs = '[1]'", "must be a JSON object"},
           {"lr_scheduler_kwargs = 'power=2'", "Write a JSON object"},
           {"lr_schedule = \"reduce_lr_on_plateau\"",
            "is not supported. The rate of a step must not depend on results"},
       }) {
    EXPECT_NE(error(toml).find(message), std::string::npos) << toml << ": " << error(toml);
  }
  EXPECT_NE(error("", {{"lr_power", "2"}}).find("has no effect with lr_schedule \"linear\""), std::string::npos);
  EXPECT_EQ(error("lr_power = 2"), "");  // other runs may need it
}

TEST(TrainerWords, FractionsOfAllSteps) {
  const ResolvedSettings r =
      resolved("warmup_steps = 0.1\nsave_strategy = \"steps\"\nsave_steps = 0.5\nlogging_steps = 500.0",
               {{"eval_steps", "0.25"}, {"eval_strategy", "steps"}, {"max_steps", "-1"}});
  EXPECT_EQ(r.settings.warmup_steps.of(101), 11);
  EXPECT_EQ(r.settings.save_steps.of(101), 51);
  EXPECT_EQ(r.settings.eval_steps.of(1), 1);
  EXPECT_EQ(r.settings.logging_steps, 500);
  EXPECT_EQ(r.settings.max_steps, 0);
  EXPECT_NE(resolved_config_text(r).find("\nwarmup_steps = 0.1 "), std::string::npos);
  EXPECT_EQ(error("warmup_steps = 1.5"),
            "c:1: warmup_steps: must be a whole number, or a fraction of all steps below 1, got 1.5");
  for (const char* wrong : {"-0.1", "-1", "nan", "inf", "1e300", "10%", ""}) {
    EXPECT_NE(error("", {{"eval_steps", wrong}}), "") << wrong;
  }
  EXPECT_NE(error("warmup_steps = 0.1\nwarmup_ratio = 0.1").find("contradicts warmup_steps 0.1"), std::string::npos);
  const std::string best =
      "load_best_model_at_end = true\neval_strategy = \"steps\"\nsave_strategy = \"steps\"\n"
      "eval_dataset = \"e\"\n";
  EXPECT_EQ(error(best + "save_steps = 0.3\neval_steps = 0.1"), "");
  for (const char* steps : {"save_steps = 0.25\neval_steps = 0.1", "save_steps = 20\neval_steps = 0.1"}) {
    EXPECT_NE(error(best + steps).find("is not a multiple of eval_steps 0.1"), std::string::npos) << steps;
  }
}

TEST(TrainerWords, WhatIsPrintedReadsBack) {
  const ResolvedSettings first =
      resolved("fp16 = true\ngradient_checkpointing = true\ntrain_size_per_rank = 5", {{"bf16", "true"}}, 3);
  const ResolvedSettings again = resolved(resolved_config_text(first));
  for (const Setting& setting : all_settings()) {
    if (setting.stands_for_others) continue;
    EXPECT_EQ(setting.get(again.settings), setting.get(first.settings)) << setting.name;
  }
  EXPECT_EQ(again.settings.precision, S::Precision::bf16);
  EXPECT_EQ(again.settings.train_size, 15);
}

TEST(TrainSizePerRank, SetsTheTotal) {
  EXPECT_EQ(resolved("train_size_per_rank = 500\nnproc = 4").settings.train_size, 2000);
  EXPECT_EQ(resolved("train_size_per_rank = 500", {}, 8).settings.train_size, 4000);
  EXPECT_EQ(resolved("train_size_per_rank = 500\nnproc = 4", {{"train_size", "32"}}).settings.train_size, 32);
  EXPECT_EQ(resolved("train_size = 9", {{"train_size_per_rank", "2"}, {"nproc", "3"}}).settings.train_size, 6);
  EXPECT_EQ(error("train_size = 9\ntrain_size_per_rank = 2"),
            "c:2: train_size_per_rank: 2 contradicts c:1: train_size 9. Give only one of the two");
  EXPECT_NE(error("train_size_per_rank = 2147483647\nnproc = 4").find("must be at most"), std::string::npos);
}

TEST(FsdpConfig, OfAJsonFile) {
  const auto path = std::filesystem::temp_directory_path() / ("tessera-fsdp-" + std::to_string(getpid()) + ".json");
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write(R"({"fsdp_transformer_layer_cls_to_wrap": ["torch.nn.modules.transformer.TransformerEncoderLayer"],
            "backward_prefetch": "backward_post", "forward_prefetch": true, "sync_module_states": true,
            "state_dict_type": "sharded_state_dict", "offload_to_cpu": true,
            "mixed_precision": {"enabled": true, "param_dtype": "float16", "reduce_dtype": "torch.float32"}})");
  const ResolvedSettings r = resolved("fsdp = \"full_shard\"", {{"fsdp_config", path.string()}});
  EXPECT_EQ(r.settings.strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(r.settings.backward_prefetch, BackwardPrefetch::post);
  EXPECT_TRUE(r.settings.forward_prefetch && r.settings.sync_module_states);
  EXPECT_EQ(r.settings.precision, S::Precision::fp16);
  EXPECT_EQ(r.settings.reduce_dtype, DType::f32);
  EXPECT_EQ(r.origins.at("backward_prefetch").to_string(), "flag --fsdp-config");
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_NE(r.warnings[0].find("offload_to_cpu (checkpoints are written"), std::string::npos) << r.warnings[0];
  write(R"({"backward_prefetch": "never"})");
  EXPECT_NE(error("", {{"fsdp_config", path.string()}}).find("backward_prefetch: unknown value \"never\""),
            std::string::npos);
  write(R"([1])");
  EXPECT_NE(error("", {{"fsdp_config", path.string()}}).find("must be a JSON object"), std::string::npos);
  write(R"({"a": [1]})");
  EXPECT_NE(error("", {{"fsdp_config", path.string()}}).find("must be a text, a number"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(error("", {{"fsdp_config", path.string()}}).find("no such file"), std::string::npos);
}

}  // namespace
}  // namespace tessera
