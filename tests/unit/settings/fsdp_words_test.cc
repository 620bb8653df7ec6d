// Tests the table [fsdp] of a configuration file. Its keys and values have the names that accelerate, Hugging Face's
// Trainer and PyTorch use. Also tests the Trainer's option --fsdp.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

ResolvedSettings resolved(const std::string& toml, const std::vector<std::pair<std::string, std::string>>& flags = {}) {
  SettingSources sources{.flags = {}, .environment = {}, .file = parse_config(toml, "c")};
  for (const auto& [name, text] : flags) sources.flags.emplace_back(find_setting(name), text);
  return resolve(sources, kAllGroups, "eval", {"eval", "train"});
}

std::string error(const std::string& toml, const std::vector<std::pair<std::string, std::string>>& flags = {}) {
  try {
    check_consistent(resolved(toml, flags));
  } catch (const UsageError& caught) {
    return caught.what();
  }
  return "";
}

TEST(Fsdp, WordsOfAccelerate) {
  const ResolvedSettings r = resolved(
      "[fsdp]\nfsdp_sharding_strategy = \"FULL_SHARD\"\nfsdp_auto_wrap_policy = \"TRANSFORMER_BASED_WRAP\"\n"
      "fsdp_transformer_layer_cls_to_wrap = \"BloomBlock\"\nfsdp_backward_prefetch = \"BACKWARD_POST\"\n"
      "fsdp_forward_prefetch = true\nfsdp_offload_params = true\nfsdp_sync_module_states = true\n"
      "fsdp_state_dict_type = \"SHARDED_STATE_DICT\"\nfsdp_use_orig_params = true\n"
      "fsdp_cpu_ram_efficient_loading = true\nfsdp_activation_checkpointing = true\n");
  const Settings& s = r.settings;
  EXPECT_EQ(s.strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(s.backward_prefetch, BackwardPrefetch::post);
  EXPECT_TRUE(s.forward_prefetch);
  EXPECT_EQ(offload_text(s.offload), "optimizer:host,gradients:host,parameters:host");
  EXPECT_TRUE(s.sync_module_states);
  EXPECT_EQ(s.activation_checkpointing, Recomputation{.blocks = kAllBlocks});
  EXPECT_EQ(r.origins.at("strategy").to_string(), "c:2");
  EXPECT_EQ(r.warnings,
            std::vector<std::string>{"c: [fsdp]: these keys are ignored, because they have no effect in Tessera: "
                                     "cpu_ram_efficient_loading (no rank reads more than it needs), "
                                     "use_orig_params (Tessera has no Python modules)"});
}

TEST(Fsdp, WordsOfTheTrainerAndOfPytorch) {
  const ResolvedSettings r = resolved(
      "[fsdp]\nsharding_strategy = \"_HYBRID_SHARD_ZERO2\"\nbackward_prefetch = \"backward_pre\"\n"
      "transformer_layer_cls_to_wrap = [\"LlamaDecoderLayer\", \"Qwen3DecoderLayer\"]\nlimit_all_gathers = "
      "true\ncpu_offload = false\n"
      "mixed_precision_policy = {param_dtype = \"torch.bfloat16\", reduce_dtype = \"float32\", buffer_dtype = "
      "\"bf16\"}\n");
  EXPECT_EQ(r.settings.strategy, ShardingStrategy::hybrid_shard_zero2);
  EXPECT_EQ(r.settings.backward_prefetch, BackwardPrefetch::pre);
  EXPECT_EQ(r.settings.precision, Settings::Precision::bf16);
  EXPECT_EQ(r.settings.reduce_dtype, DType::f32);
  EXPECT_EQ(resolved("[fsdp.mixed_precision_policy]\nparam_dtype = \"fp16\"").settings.precision,
            Settings::Precision::fp16);
  EXPECT_EQ(resolved("[fsdp]\nmixed_precision = {reduce_dtype = \"bf16\"}").settings.reduce_dtype, DType::bf16);
  EXPECT_EQ(resolved("[fsdp]\nsharding_strategy = 2").settings.strategy, ShardingStrategy::shard_grad_op);
  EXPECT_EQ(resolved("[fsdp]\nreshard_after_forward = true").settings.strategy, ShardingStrategy::full_shard);
}

TEST(Fsdp, TablesOfVerbsGoBeforeIt) {
  const char* toml = "[eval]\nstrategy = \"zero2\"\n[fsdp]\nsharding_strategy = \"FULL_SHARD\"\n";
  EXPECT_EQ(resolved(toml).settings.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(resolved(toml, {{"strategy", "ZERO1"}}).settings.strategy, ShardingStrategy::zero1);
}

TEST(Fsdp, WhatIsWrong) {
  EXPECT_EQ(error("[fsdp]\nsharding_strategy = \"FULL\""),
            "c:2: fsdp.sharding_strategy: unknown value \"full\". Use one of: full_shard, shard_grad_op, no_shard, "
            "hybrid_shard, hybrid_shard_zero2");
  EXPECT_NE(error("[fsdp]\nsharding_strategy = 6").find("must be 1 to 5"), std::string::npos);
  EXPECT_EQ(error("[fsdp]\nshardingstrategy = 1"),
            "c:2: fsdp.shardingstrategy: unknown FSDP setting. Did you mean \"sharding_strategy\"?");
  EXPECT_EQ(error("[fsdp]\ncpu_offload = \"true\""), "c:2: fsdp.cpu_offload: must be true or false, got \"true\"");
  EXPECT_EQ(
      error("[fsdp]\ntransformer_layer_cls_to_wrap = \"GPT2Block\""),
      "c:2: fsdp.transformer_layer_cls_to_wrap: \"GPT2Block\" is not a block class that this key supports. Give the "
      "class of the model's blocks (BloomBlock, LlamaDecoderLayer, MistralDecoderLayer, Qwen2DecoderLayer, "
      "Qwen3DecoderLayer, TransformerEncoderLayer), or remove the key, because every block is a unit");
  EXPECT_EQ(error("strategy = \"zero1\"\n[fsdp]\nsharding_strategy = 1"),
            "c:3: fsdp.sharding_strategy: is already set in line 1. Remove one of the two lines");
  EXPECT_NE(error("[fsdp]\nsharding_strategy = 1\nfsdp_sharding_strategy = 2").find("is already set"),
            std::string::npos);
  EXPECT_NE(error("[fsdp]\nlimit_all_gathers = [true]").find("is an array"), std::string::npos);
  EXPECT_NE(error("[fsdp.a.b]\nc = 1").find("is a table"), std::string::npos);
  EXPECT_NE(error("[fsdp]\ncpu_offload = true").find("does not shard them"), std::string::npos);
}

TEST(FsdpOption, OfTheTrainer) {
  const ResolvedSettings r = resolved("", {{"fsdp", "full_shard auto_wrap offload"}});
  EXPECT_EQ(r.settings.strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(r.origins.at("strategy").to_string(), "flag --fsdp");
  EXPECT_EQ(offload_text(r.settings.offload), "optimizer:host,gradients:host,parameters:host");
  EXPECT_EQ(resolved("fsdp = \"full_shard\"", {{"strategy", "zero2"}}).settings.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(resolved("strategy = \"zero2\"", {{"fsdp", "full_shard"}}).settings.strategy, ShardingStrategy::full_shard);
  EXPECT_EQ(error("", {{"fsdp", "full_shard"}, {"strategy", "zero2"}}),
            "--fsdp: \"full_shard\" contradicts --strategy \"zero2\". Give only one of the two");
  EXPECT_EQ(error("", {{"fsdp", "full_shard shard_grad_op"}}),
            "--fsdp: contains both full_shard and shard_grad_op. Give one strategy");
  EXPECT_EQ(error("", {{"fsdp", "offload"}}).substr(0, 39), "--fsdp: \"offload\" contains no strategy.");
  EXPECT_EQ(error("", {{"fsdp", "fullshard"}}).substr(0, 45), "--fsdp: unknown value \"fullshard\". Use one of");
}

}  // namespace
}  // namespace tessera
