// Tests DeepSpeed's JSON configuration as a source of settings.
#include "tessera/settings/foreign/deepspeed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

#include "tessera/base/error.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

// The example configuration in the documentation of Hugging Face's Trainer.
const char* const kAllAuto = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
})";

class DeepSpeed : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tessera-deepspeed-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/ds.json";
  }
  void TearDown() override {
    std::remove(path_.c_str());
    std::remove(folder_.c_str());
  }

  ResolvedSettings resolved(const std::string& json, const std::string& toml = "", int64_t num_ranks = 1,
                            const std::vector<std::pair<std::string, std::string>>& flags = {}) {
    std::ofstream(path_) << json;
    SettingSources sources{.flags = {{find_setting("deepspeed"), path_}},
                           .environment = {},
                           .file = parse_config(toml, "c.toml"),
                           .num_ranks = num_ranks};
    for (const auto& [name, text] : flags) sources.flags.emplace_back(find_setting(name), text);
    return resolve(sources, kAllGroups, "train", {"train"});
  }

  // Returns the error message, or an empty text if there is no error. The message does not contain the folder of the
  // file: "ds.json: …".
  std::string error(const std::string& json, const std::string& toml = "", int64_t num_ranks = 1,
                    const std::vector<std::pair<std::string, std::string>>& flags = {}) {
    try {
      check_consistent(resolved(json, toml, num_ranks, flags));
    } catch (const UsageError& caught) {
      return without_folder(caught.what());
    }
    return "";
  }

  std::string origin(const ResolvedSettings& resolved, const char* name) {
    return without_folder(resolved.origins.at(name).to_string());
  }

  std::string without_folder(std::string text) {
    for (size_t at = 0; (at = text.find(folder_ + "/")) != text.npos;) text.erase(at, folder_.size() + 1);
    return text;
  }

  std::string folder_, path_;
};

TEST_F(DeepSpeed, AutoTakesTheTrainersValues) {
  const ResolvedSettings r = resolved(kAllAuto, "lr = 3e-4\nbatch_size = 2\ngrad_accum = 8\nprecision = \"bf16\"", 4);
  const Settings& s = r.settings;
  EXPECT_EQ(s.strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(origin(r, "strategy"), "ds.json: zero_optimization.stage");
  EXPECT_EQ(offload_text(s.offload), "optimizer:host,gradients:host,parameters:host");
  EXPECT_TRUE(s.pin_memory);
  EXPECT_EQ(s.lr, 3e-4);
  EXPECT_EQ(origin(r, "lr"), "c.toml:1");
  EXPECT_EQ(s.batch_size, 2);
  EXPECT_EQ(s.grad_accum, 8);
  EXPECT_EQ(s.precision, Settings::Precision::bf16);
  EXPECT_EQ(s.weight_decay, Settings{}.weight_decay);
  EXPECT_EQ(origin(r, "weight_decay"), "default");
  EXPECT_EQ(s.max_grad_norm, Settings{}.max_grad_norm);
  EXPECT_EQ(s.lr_schedule, Schedule::linear);
  EXPECT_EQ(s.warmup_steps, 0);
  EXPECT_EQ(s.lr_decay_steps, 0);
  EXPECT_EQ(s.warmup_type, Warmup::log);  // the key warmup_type is missing, so DeepSpeed's default applies
  EXPECT_EQ(origin(r, "warmup_type"), "default of DeepSpeed");
  EXPECT_EQ(s.reduce_bucket_size, Settings{}.reduce_bucket_size);
  EXPECT_EQ(s.loss_scale_rules, LossScaleRules::grad_scaler);  // in bf16, the section fp16 has no effect
  EXPECT_EQ(s.loss_scale_hysteresis, 0);
  EXPECT_EQ(error(kAllAuto), "");
}

TEST_F(DeepSpeed, IgnoredKeysAreReportedOnce) {
  const ResolvedSettings r = resolved(kAllAuto);
  ASSERT_EQ(r.warnings.size(), 1u);
  const std::string note = without_folder(r.warnings[0]);
  EXPECT_TRUE(note.starts_with("ds.json: these keys are ignored, because they have no effect in Tessera: ")) << note;
  for (const char* key :
       {"steps_per_print (see logging_steps)", "zero_optimization.overlap_comm (always overlapped)",
        "zero_optimization.stage3_prefetch_bucket_size (gathered unit by unit)", "wall_clock_breakdown ("}) {
    EXPECT_NE(note.find(key), note.npos) << key;
  }
  EXPECT_EQ(note.find("gradient_clipping"), note.npos);
}

TEST_F(DeepSpeed, ExplicitValues) {
  const ResolvedSettings r = resolved(R"({
    "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5, "gradient_clipping": 0.5,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 0.01, "warmup_num_steps": 7,
                                                 "warmup_type": "linear"}},
    "bf16": {"enabled": true}, "communication_data_type": "bf16",
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8,
                          "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}})");
  const Settings& s = r.settings;
  EXPECT_EQ(s.batch_size, 3);
  EXPECT_EQ(s.grad_accum, 5);
  EXPECT_EQ(s.max_grad_norm, 0.5);
  EXPECT_EQ(s.lr, 0.01);
  EXPECT_EQ(s.beta1, 0.8);
  EXPECT_EQ(s.beta2, 0.99);
  EXPECT_EQ(s.adam_epsilon, 1e-6);
  EXPECT_EQ(s.weight_decay, 0.1);
  EXPECT_EQ(s.lr_schedule, Schedule::constant);
  EXPECT_EQ(s.warmup_min_lr, 1e-5);
  EXPECT_EQ(s.warmup_steps, 7);
  EXPECT_EQ(s.warmup_type, Warmup::linear);
  EXPECT_EQ(s.precision, Settings::Precision::bf16);
  EXPECT_EQ(s.reduce_dtype, DType::bf16);
  EXPECT_EQ(s.reduce_bucket_size, 1'000'000'000);  // 5e8 elements of two bytes
  EXPECT_EQ(s.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(offload_text(s.offload), "optimizer:file,gradients:host");
  EXPECT_EQ(s.offload_dir, "/nvme");
  EXPECT_EQ(origin(r, "beta2"), "ds.json: optimizer.params.betas");
}

TEST_F(DeepSpeed, ItsDefaultsApplyToMissingKeys) {
  const ResolvedSettings r = resolved(R"({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"},
                                          "fp16": {"enabled": true}})");
  const Settings& s = r.settings;
  EXPECT_EQ(s.lr, 1e-3);
  EXPECT_EQ(s.weight_decay, 0);
  EXPECT_EQ(s.max_grad_norm, 0);
  EXPECT_EQ(s.warmup_steps, 1000);
  EXPECT_EQ(s.warmup_type, Warmup::log);
  EXPECT_EQ(s.strategy, ShardingStrategy::no_shard);
  EXPECT_EQ(s.loss_scale_rules, LossScaleRules::deepspeed);
  for (const char* name : {"lr", "weight_decay", "max_grad_norm", "warmup_steps", "strategy", "loss_scale_rules"}) {
    EXPECT_EQ(origin(r, name), "default of DeepSpeed") << name;
    EXPECT_FALSE(r.is_given(name)) << name;
  }
  // With "auto", lr keeps Tessera's default and not DeepSpeed's default of 1e-3. The scheduler's missing key
  // warmup_max_lr does not change lr either.
  EXPECT_EQ(resolved(R"({"optimizer": {"params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR"}})").settings.lr,
            Settings{}.lr);
  // If a section is missing, its defaults do not apply. gradient_clipping is not in a section, so its default applies.
  // A value from another source overrides DeepSpeed's defaults: warmup_ratio overrides the default of warmup_num_steps.
  EXPECT_EQ(resolved("{}").settings.weight_decay, Settings{}.weight_decay);
  EXPECT_EQ(resolved("{}").settings.max_grad_norm, 0);
  EXPECT_EQ(resolved("{}", "max_grad_norm = 2").settings.max_grad_norm, 2);
  EXPECT_EQ(resolved(R"({"scheduler": {"type": "WarmupLR"}})", "warmup_ratio = 0.1").settings.warmup_steps, 0);
}

// Pinning does not change results. If the file does not contain pin_memory, memory is pinned, because this makes copies
// faster.
TEST_F(DeepSpeed, OffloadedMemoryIsPinnedUnlessTheFileSaysNo) {
  const auto pins = [&](const std::string& offload) {
    const Settings s =
        resolved(R"({"zero_optimization": {"stage": 2, "offload_optimizer": )" + offload + "}}").settings;
    EXPECT_EQ(offload_text(s.offload), "optimizer:host,gradients:host");
    return s.pin_memory;
  };
  EXPECT_TRUE(pins(R"({"device": "cpu"})"));
  EXPECT_TRUE(pins(R"({"device": "cpu", "pin_memory": true})"));
  EXPECT_FALSE(pins(R"({"device": "cpu", "pin_memory": false})"));
}

// DeepSpeed's Twin-Flow: a share of the optimizer states is updated on the CPU.
TEST_F(DeepSpeed, ARatioOffloadsAShare) {
  const auto offload = [&](const std::string& ratio) {
    return offload_text(
        resolved(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "ratio": )" + ratio +
                 "}}}")
            .settings.offload);
  };
  EXPECT_EQ(offload("1.0"), "optimizer:host,gradients:host");
  for (int percent = 1; percent < 100; ++percent) {
    EXPECT_EQ(offload(fmt::format("{}", percent / 100.0)),
              fmt::format("optimizer:host={0}%,gradients:host={0}%", percent));
  }
  for (const char* ratio : {"0", "-0.1", "1.5"}) {
    EXPECT_NE(
        error(fmt::format(
                  R"({{"zero_optimization": {{"stage": 1, "offload_optimizer": {{"device": "cpu", "ratio": {}}}}}}})",
                  ratio))
            .find("ratio: must be greater than 0 and at most 1"),
        std::string::npos);
  }
}

// A flag overrides the DeepSpeed file, and the DeepSpeed file overrides the TOML file.
TEST_F(DeepSpeed, Precedence) {
  const char* json = R"({"optimizer": {"params": {"lr": 0.5}}, "gradient_clipping": 0.5, "zero_optimization":
                         {"stage": 2}})";
  const ResolvedSettings r = resolved(json, "lr = 0.1\nmax_grad_norm = 0.1\nstrategy = \"zero1\"", 1, {{"lr", "0.9"}});
  EXPECT_EQ(r.settings.lr, 0.9);
  EXPECT_EQ(r.settings.max_grad_norm, 0.5);
  EXPECT_EQ(r.settings.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(origin(r, "lr"), "flag --lr");
}

TEST_F(DeepSpeed, TwoBatchSizesDetermineTheThird) {
  const auto batch = [&](const std::string& json, const std::string& toml = "", int64_t ranks = 2) {
    const Settings s = resolved(json, toml, ranks).settings;
    return std::pair(s.batch_size, s.grad_accum);
  };
  using P = std::pair<int64_t, int64_t>;
  EXPECT_EQ(batch(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})"), P(4, 8));
  EXPECT_EQ(batch(R"({"train_batch_size": 64, "gradient_accumulation_steps": 4})"), P(8, 4));
  EXPECT_EQ(batch(R"({"train_batch_size": 64})"), P(32, 1));
  EXPECT_EQ(batch(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
                      "gradient_accumulation_steps": 8})"),
            P(4, 8));
  EXPECT_EQ(batch(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto",
                      "gradient_accumulation_steps": "auto"})"),
            P(4, 8));  // 4 is Tessera's default of batch_size
  EXPECT_EQ(batch(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})", "grad_accum = 2"), P(16, 2));
  EXPECT_EQ(batch(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4})", "grad_accum = 2"), P(4, 2));
  EXPECT_EQ(batch(R"({"train_batch_size": "auto"})", "batch_tokens = 600"), P(0, 1));
  EXPECT_NE(
      error(R"({"train_batch_size": 64})", "batch_tokens = 600").find("64 contradicts c.toml:1: batch_tokens 600"),
      std::string::npos);
  const ResolvedSettings r = resolved(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", "", 2);
  EXPECT_EQ(origin(r, "grad_accum"), "ds.json: train_batch_size");
}

TEST_F(DeepSpeed, TheRanksThatNprocStartsCount) {
  const char* json = R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})";
  EXPECT_EQ(resolved(json, "", 1, {{"nproc", "4"}}).settings.grad_accum, 4);
  EXPECT_EQ(resolved(json, "nproc = 2").settings.grad_accum, 8);
  EXPECT_EQ(resolved(json, "nproc = 2").num_ranks, 2);
  EXPECT_NE(error(json, "nproc = 3").find("64 is not a multiple of batch_size 4"), std::string::npos);
}

TEST_F(DeepSpeed, BatchSizesThatContradictEachOther) {
  const char* json = R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
                         "gradient_accumulation_steps": 4})";
  EXPECT_EQ(error(json, "", 4), "");
  EXPECT_EQ(
      error(json, "", 2),
      "ds.json: train_batch_size: 64 is not batch_size 4 (ds.json: train_micro_batch_size_per_gpu) x grad_accum 4 "
      "(ds.json: gradient_accumulation_steps) x 2 ranks. Change one of these numbers, or write \"auto\"");
  EXPECT_EQ(error(json, "", 4, {{"batch_size", "8"}}),
            "ds.json: train_batch_size: 64 is not batch_size 8 (flag --batch-size) x grad_accum 4 (ds.json: "
            "gradient_accumulation_steps) x 4 ranks. Change one of these numbers, or write \"auto\"");
  EXPECT_EQ(error(R"({"train_batch_size": 10})", "", 4),
            "ds.json: train_batch_size: 10 is not a multiple of 4 ranks. Change one of these numbers, or write "
            "\"auto\"");
  EXPECT_NE(error(R"({"train_batch_size": 9223372036854775807, "train_micro_batch_size_per_gpu": 1})", "", 1), "");
  EXPECT_EQ(error(R"({"train_batch_size": 0})"), "ds.json: train_batch_size: must be at least 1, got 0");
}

TEST_F(DeepSpeed, ATextIsNotANumber) {
  EXPECT_EQ(error(R"({"train_batch_size": "8"})"),
            "ds.json: train_batch_size: must be a whole number, got \"8\". Write it without quotes, or \"auto\"");
  EXPECT_EQ(
      error(R"({"zero_optimization": {"stage": "3"}})"),
      "ds.json: zero_optimization.stage: must be a whole number, got \"3\". Write it without quotes, or \"auto\"");
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 2.5}})"),
            "ds.json: zero_optimization.stage: must be a whole number, got 2.5");
  EXPECT_EQ(error(R"({"fp16": {"enabled": "true"}})"),
            "ds.json: fp16.enabled: must be true or false, got \"true\". Write it without quotes, or \"auto\"");
  EXPECT_EQ(error(R"({"fp16": {"enabled": 1}})"), "ds.json: fp16.enabled: must be true or false, got 1");
  EXPECT_EQ(error(R"({"fp16": {"enabled": false, "hysteresis": true}})"),
            "ds.json: fp16.hysteresis: must be a whole number, got true");
  EXPECT_EQ(error(R"({"zero_optimization": true})"),
            "ds.json: zero_optimization: must be an object, got true. Write an object in braces: {...}");
  EXPECT_EQ(error(R"({"optimizer": {"params": {"betas": [0.9]}}})"),
            "ds.json: optimizer.params.betas: must be an array of two numbers, got an array of 1 element");
  EXPECT_EQ(error(R"({"optimizer": {"params": {"betas": [0.9, "0.99"]}}})"),
            "ds.json: optimizer.params.betas: must be an array of two numbers, but an element is \"0.99\". Write the "
            "number without quotes");
  EXPECT_EQ(error(R"({"zero_optimization": "auto"})"),
            "ds.json: zero_optimization: must be an object, got \"auto\". Write an object in braces: {...}");
  EXPECT_EQ(error(R"({"optimizer": {"params": {"lr": -1}}})"),
            "ds.json: optimizer.params.lr: must be at least 0, got -1.0");
  EXPECT_EQ(error(R"({"train_micro_batch_size_per_gpu": 18446744073709551615})"),
            "ds.json: train_micro_batch_size_per_gpu: must be a whole number, got 18446744073709551615");
}

TEST_F(DeepSpeed, UnknownKeys) {
  EXPECT_EQ(error(R"({"zero_optimisation": {}})"),
            "ds.json: has the unknown key \"zero_optimisation\". Did you mean \"zero_optimization\"?");
  EXPECT_EQ(error(R"({"zero_optimization": {"stge": 1}})"),
            "ds.json: zero_optimization: has the unknown key \"stge\". Did you mean \"stage\"?");
  EXPECT_EQ(error(R"({"optimizer.type": "AdamW"})").substr(0, 45), "ds.json: has the unknown key \"optimizer.type\"");
  EXPECT_EQ(error(R"({"fp16": {"enabled": true, "enabled": false}})"),
            "ds.json: has the key \"enabled\" twice in one object");
}

TEST_F(DeepSpeed, NotJson) {
  EXPECT_NE(error("{\n\"a\": \n").find("ds.json:3:1: not valid JSON"), std::string::npos);
  EXPECT_EQ(error("[]"), "ds.json: must be a JSON object");
  EXPECT_NE(error(std::string(20000, ' ')).find("has more than 16384 bytes"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 3000; ++i) deep += "{\"a\":";
  EXPECT_NE(error(deep).find("deeper than"), std::string::npos);
}

TEST_F(DeepSpeed, ContradictionsWithinTheFile) {
  EXPECT_EQ(error(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"),
            "ds.json: fp16.enabled: true contradicts bf16.enabled true. Enable only one of the two");
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
            "ds.json: zero_optimization.offload_param: needs stage 3, but zero_optimization.stage is 2. Write stage 3, "
            "or remove this section");
  EXPECT_EQ(error(R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})"),
            "ds.json: zero_optimization.offload_optimizer: needs stage 1, 2 or 3, but zero_optimization.stage is 0. "
            "Write one of these stages, or remove this section");
  EXPECT_EQ(error(R"({"zero_optimization": {"offload_param": {"device": "none"}}})"), "");
  EXPECT_NE(error(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}})")
                .find("needs a folder for its files"),
            std::string::npos);
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "disk"}}})"),
            "ds.json: zero_optimization.offload_optimizer.device: unknown value \"disk\". Use one of: none, cpu, nvme");
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 4}})"),
            "ds.json: zero_optimization.stage: must be 0, 1, 2 or 3, got 4");
  EXPECT_EQ(error(R"({"optimizer": {"params": {"lr": 0.1}}, "scheduler": {"type": "WarmupLR", "params":
                     {"warmup_max_lr": 0.2}}})"),
            "ds.json: scheduler.params.warmup_max_lr: 0.2 contradicts optimizer.params.lr 0.1. DeepSpeed would use "
            "0.2: write it in both places");
  EXPECT_NE(error(R"({"scheduler": {"type": "WarmupDecayLR"}})").find("total_num_steps: is missing"),
            std::string::npos);
  EXPECT_NE(error(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1}}})").find("peak learning rate"),
            std::string::npos);
}

TEST_F(DeepSpeed, ContradictionsWithOtherSettings) {
  EXPECT_EQ(error(R"({"fp16": {"enabled": false}})", "precision = \"fp16\""),
            "ds.json: fp16.enabled: is false, but the precision is \"fp16\" (c.toml:1: precision). Write \"auto\" here "
            "to keep this precision");
  EXPECT_EQ(error(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}})", "warmup_ratio = 0.1"),
            "c.toml:1: warmup_ratio: 0.1 contradicts warmup_steps 5. Give only one of the two");
  EXPECT_EQ(error(R"({"fp16": {"enabled": true, "hysteresis": 2}})", "loss_scale_rules = \"grad_scaler\""),
            "ds.json: fp16.hysteresis: 2 applies only to DeepSpeed's rules, but loss_scale_rules is \"grad_scaler\". "
            "Give --loss-scale-rules deepspeed, or remove this setting");
  EXPECT_EQ(error("{}", "", 1, {{"fsdp", "full_shard"}}).substr(0, 30), "--fsdp: contradicts --deepspee");
}

TEST_F(DeepSpeed, WhatIsNotSupportedSaysSo) {
  EXPECT_EQ(error(R"({"optimizer": {"type": "Lamb"}})"),
            "ds.json: optimizer.type: \"Lamb\" is not supported. Use AdamW or Adam");
  EXPECT_NE(error(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})").find("coupled weight decay"),
            std::string::npos);
  EXPECT_NE(error(R"({"scheduler": {"type": "OneCycle"}})").find("WarmupLR or WarmupDecayLR"), std::string::npos);
  EXPECT_EQ(
      error(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0, "total_num_steps": 9}}})"),
      "ds.json: scheduler.type: \"WarmupCosineLR\" is not supported. Use WarmupLR or WarmupDecayLR, or remove "
      "the section \"scheduler\" and give --lr-schedule");
  EXPECT_NE(error(R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 1}}})").find("optimizer.type: \"Lamb\""),
            std::string::npos);
  EXPECT_EQ(
      error(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 50, "total_num_steps": 20}}})"),
      "ds.json: scheduler.params.total_num_steps: is 20 steps, but the warm-up alone takes 50 steps (ds.json: "
      "scheduler.params.warmup_num_steps). Give fewer warm-up steps, or a larger value here");
  EXPECT_EQ(
      error(R"({"zero_optimization": {"zero_quantized_weights": true}})"),
      "ds.json: zero_optimization.zero_quantized_weights: is not supported. Remove it: Tessera does not quantize");
  EXPECT_EQ(error(R"({"zero_optimization": {"zero_quantized_weights": false, "mics_shard_size": -1}})"), "");
  EXPECT_EQ(error(R"({"amp": {"enabled": "auto", "opt_level": "auto"}})"), "");
  EXPECT_NE(error(R"({"amp": {"enabled": true}})"), "");
  EXPECT_NE(error(R"({"data_types": {"grad_accum_dtype": "bf16"}})"), "");
}

TEST_F(DeepSpeed, Fp16Section) {
  const char* json = R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 3,
                         "initial_scale_power": 12, "min_loss_scale": 0.5}})";
  const Settings s = resolved(json).settings;
  EXPECT_EQ(s.precision, Settings::Precision::fp16);
  EXPECT_EQ(s.loss_scale_rules, LossScaleRules::deepspeed);
  EXPECT_EQ(s.loss_scale_window, 500);
  EXPECT_EQ(s.loss_scale_hysteresis, 3);
  EXPECT_EQ(s.initial_scale_power, 12);
  EXPECT_EQ(s.min_loss_scale, 0.5);
  EXPECT_EQ(error(json), "");
  // The flag selects bf16, so the section fp16 has no effect.
  EXPECT_EQ(resolved(json, "", 1, {{"precision", "bf16"}}).settings.loss_scale_window, 0);
  EXPECT_EQ(error(json, "", 1, {{"precision", "bf16"}}), "");
}

// The printed configuration contains the values of the DeepSpeed file. A run with this configuration does not need the
// DeepSpeed file, so the line with its name is a comment.
TEST_F(DeepSpeed, IsPrintedAsACommentWithItsValues) {
  const ResolvedSettings r = resolved(R"({"gradient_clipping": 0.25})");
  const std::string text = resolved_config_text(r);
  EXPECT_NE(text.find("\n# deepspeed = \""), text.npos);
  const ResolvedSettings again =
      resolve({.flags = {}, .environment = {}, .file = parse_config(text, "again")}, kAllGroups, "train", {"train"});
  EXPECT_EQ(again.settings.max_grad_norm, 0.25);
  EXPECT_EQ(again.settings.deepspeed, "");
}

}  // namespace
}  // namespace tessera
