// Tests the settings of sharding, offload, checkpointing and loss scaling: their values and their contradictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/settings/resolve.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

std::string error_of(const char* name, const SettingValue& value) {
  try {
    checked_value(*find_setting(name), value, "here");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string canonical(const char* name, const SettingValue& value) {
  return plain_text(checked_value(*find_setting(name), value, "here"));
}

// Returns the error message of settings that contradict each other, or an empty text if there is no contradiction.
std::string contradiction(const std::string& toml, int64_t num_ranks = 1) {
  try {
    check_consistent(resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "c"), .num_ranks = num_ranks},
                             kAllGroups, "train", {"train"}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Bytes, UnitsAndCanonicalText) {
  const auto read = [](const char* text) { return parse_bytes(text, ""); };
  EXPECT_EQ(read("0"), 0);
  EXPECT_EQ(read("500000000B"), 500'000'000);
  EXPECT_EQ(read("5e8 b"), 500'000'000);
  EXPECT_EQ(read("32GiB"), int64_t{32} << 30);
  EXPECT_EQ(read("32 gib"), int64_t{32} << 30);
  EXPECT_EQ(read("25MB"), 25'000'000);
  EXPECT_EQ(read("1.5KiB"), 1536);
  EXPECT_EQ(read("12 B"), 12);
  EXPECT_EQ(read("9007199254740993B"), 9007199254740993);
  EXPECT_EQ(canonical("fit", "32768MiB"), "32GiB");
  EXPECT_EQ(canonical("fit", int64_t{0}), "0");
  EXPECT_EQ(canonical("fit", "Auto"), "auto");
  EXPECT_EQ(canonical("fit", "500000000B"), "500MB");
  EXPECT_EQ(canonical("fit", "1001B"), "1001B");
  EXPECT_EQ(canonical("fit", "80GB"), "80GB");
  EXPECT_EQ(canonical("fit", "1024000B"), "1000KiB");
  EXPECT_EQ(canonical("fit", "1.5GiB"), "1536MiB");
  std::mt19937_64 random(1);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 40, int64_t{999}, INT64_MAX}) {
    EXPECT_EQ(parse_bytes(bytes_text(bytes), ""), bytes);
  }
  EXPECT_EQ(rounded_down_bytes_text(80'000'000'000), "80GB");
  EXPECT_EQ(rounded_down_bytes_text(85'520'809'984), "81559MiB");
  EXPECT_EQ(rounded_down_bytes_text(12'345'678), "12056KiB");
  for (int i = 0; i < 1000; ++i) {
    const auto bytes = static_cast<int64_t>(random() >> (1 + random() % 63));
    const int64_t rounded = parse_bytes(rounded_down_bytes_text(bytes), "");
    EXPECT_LE(rounded, bytes);
    EXPECT_GE(static_cast<double>(rounded), 0.999 * static_cast<double>(bytes));
    EXPECT_LE(rounded_down_bytes_text(bytes).size(), bytes < int64_t{1} << 49 ? 10 : 12) << bytes;
  }
}

// "0GB" is a size of nothing; only the word 0 has a meaning of its own.
TEST(Bytes, ASizeOfZeroIsRefused) {
  for (const Setting& setting : all_settings()) {
    if (setting.type != SettingType::bytes) continue;
    for (const char* zero : {"0GB", "0 kib", "0.0MiB", "0b"}) {
      EXPECT_THAT(
          error_of(setting.name.c_str(), zero),
          testing::AnyOf(testing::HasSubstr("is zero. Give a larger size"), testing::HasSubstr("must be at least 1")))
          << setting.name << " " << zero;
    }
  }
}

// Only 0 needs no unit. The error proposes a unit: that of the default, or GiB. A large number probably counts bytes.
TEST(Bytes, NeedAUnit) {
  for (const Setting& setting : all_settings()) {
    if (setting.type != SettingType::bytes) continue;
    EXPECT_NE(error_of(setting.name.c_str(), "80").find("the size \"80\" has no unit. Write 80"), std::string::npos)
        << setting.name << ": " << error_of(setting.name.c_str(), "80");
    EXPECT_EQ(error_of(setting.name.c_str(), int64_t{80}), error_of(setting.name.c_str(), "80"));
  }
  EXPECT_EQ(error_of("fit", "80"), "here: the size \"80\" has no unit. Write 80GiB, or 80B for bytes");
  EXPECT_EQ(error_of("device_memory", "1.5"), "here: the size \"1.5\" has no unit. Write 1.5GiB");
  EXPECT_EQ(error_of("reduce_bucket_size", "25"), "here: the size \"25\" has no unit. Write 25MiB, or 25B for bytes");
  EXPECT_EQ(error_of("max_shard_size", "5"), "here: the size \"5\" has no unit. Write 5GB, or 5B for bytes");
  EXPECT_EQ(error_of("max_shard_size", "5e9"),
            "here: the size \"5e9\" has no unit. Write 5GB for this number of bytes");
  EXPECT_EQ(error_of("fit", int64_t{34359738368}),
            "here: the size \"34359738368\" has no unit. Write 32GiB for this number of bytes");
}

TEST(Bytes, InvalidAmounts) {
  EXPECT_EQ(error_of("fit", "32G"),
            "here: must be a number of bytes, got \"32G\". Write GiB (powers of 1024) or GB (powers of 1000)");
  for (const char* text : {"", "GiB", "x", "-1", "-1GiB", "nan", "inf", "0x10", "1 2", "1GiBs", "1..5GiB"}) {
    EXPECT_NE(error_of("fit", text).find("must be a number of bytes"), std::string::npos) << text;
  }
  EXPECT_EQ(error_of("fit", "0.3B"), "here: \"0.3B\" is not a whole number of bytes");
  EXPECT_EQ(error_of("fit", "9223372036854775808B"), "here: \"9223372036854775808B\" is too large");
  EXPECT_EQ(error_of("fit", "1e300TiB"), "here: \"1e300TiB\" is too large");
  EXPECT_NE(error_of("fit", int64_t{-1}).find("must be a number of bytes, got \"-1\""), std::string::npos);
  EXPECT_EQ(error_of("reduce_bucket_size", "0MiB"), "here: must be at least 1, got \"0MiB\"");
  EXPECT_EQ(error_of("fit", 1.5), "here: must be a number of bytes with a unit, for example \"32GiB\", got 1.5");
}

TEST(OffloadWords, ReadAndPrint) {
  EXPECT_EQ(canonical("offload", "none"), "none");
  EXPECT_EQ(canonical("offload", "optimizer"), "optimizer:host");
  EXPECT_EQ(canonical("offload", "parameters, optimizer:FILE"), "optimizer:file,parameters:host");
  EXPECT_EQ(canonical("offload", "optimizer:nvme,gradients:cpu"), "optimizer:file,gradients:host");
  EXPECT_EQ(canonical("offload", "optimizer=12"), "optimizer:host=12");
  EXPECT_EQ(canonical("offload", "Gradients:cpu = 40%, optimizer:file=060%"), "optimizer:file=60%,gradients:host=40%");
  EXPECT_EQ(canonical("offload", "parameters:host=100%"), "parameters:host");
  EXPECT_EQ(canonical("offload", "optimizer:file=AUTO"), "optimizer:file=auto");
  EXPECT_EQ(canonical("offload", "auto"), "optimizer:host=auto,gradients:host=auto");
  for (const char* item : {"optimizer=0", "optimizer=", "optimizer:host=-1", "optimizer=101%", "optimizer=1.5",
                           "optimizer=%", "optimizer=12=12", "optimizer=99999999999999999999", "optimizer=all"}) {
    EXPECT_EQ(error_of("offload", item),
              std::string("here: \"") + item +
                  "\" does not say how much to offload. Write a number of blocks, a share or auto after \"=\", for "
                  "example optimizer=12, optimizer=40% or optimizer=auto");
  }
  EXPECT_EQ(
      error_of("offload", "optimiser"),
      "here: cannot offload \"optimiser\". Did you mean \"optimizer\"? Write none, auto, or a comma-separated list of "
      "optimizer, gradients, parameters");
  EXPECT_EQ(error_of("offload", "optimizer:disk"),
            "here: unknown tier in \"optimizer:disk\". Use one of: host (also cpu), file (also nvme)");
  EXPECT_EQ(error_of("offload", "optimizer,optimizer:file"), "here: contains optimizer twice. Remove one of the two");
  for (const char* text : {"", ",", "optimizer,", "none,optimizer", "optimizer:", ":host", "optimizer:host:file"}) {
    EXPECT_NE(error_of("offload", text), "") << text;
  }
}

TEST(Checkpointing, ReadsAndPrints) {
  const auto canonical_text = [](const char* text) { return canonical("activation_checkpointing", text); };
  struct Case {
    const char* text;
    Recomputation value;
    const char* canonical;
  };
  for (const auto& [text, value, printed] : {
           Case{"none", {}, "none"},
           {"off", {}, "none"},
           {"0", {}, "none"},
           {"block", {.blocks = kAllBlocks}, "block"},
           {" True ", {.blocks = kAllBlocks}, "block"},
           {"12", {.blocks = 12}, "12"},
           {"block=12", {.blocks = 12}, "12"},
           {"mlp", {.mlp = kAllBlocks}, "mlp"},
           {"mlp=0", {}, "none"},
           {"attention=3", {.attention = 3}, "attention=3"},
           {"Auto", {.automatic = true}, "auto"},
           {"attention,MLP", {.mlp = kAllBlocks, .attention = kAllBlocks}, "mlp,attention"},
           {"mlp = 20, block=4", {.blocks = 4, .mlp = 20}, "block=4,mlp=20"},
           {"block,mlp=1,attention=2", {.blocks = kAllBlocks, .mlp = 1, .attention = 2}, "block,mlp=1,attention=2"},
       }) {
    EXPECT_EQ(parse_checkpointing(text, ""), value) << text;
    EXPECT_EQ(canonical_text(text), printed);
    EXPECT_EQ(parse_checkpointing(printed, ""), value) << text;
  }
  const auto error = [](const char* text) { return error_of("activation_checkpointing", text); };
  EXPECT_EQ(error("mlp=2,mlp"), "here: contains mlp twice. Remove one of the two");
  for (const auto& [text, item] : {std::pair{"mpl", "mpl"},
                                   {"", ""},
                                   {"-1", "-1"},
                                   {"2.5", "2.5"},
                                   {"mlp,", ""},
                                   {"4,mlp", "4"},
                                   {"none,mlp", "none"},
                                   {"mlp=all", "mlp=all"},
                                   {"mlp=-1", "mlp=-1"},
                                   {"mlp=9223372036854775807", "mlp=9223372036854775807"}}) {
    EXPECT_TRUE(
        error(text).starts_with("here: must be none, auto, a number of blocks, or a list of block, mlp and "
                                "attention, got \"" +
                                std::string(item) + "\""))
        << error(text);
  }
  EXPECT_NE(error("mpl").find("Did you mean \"mlp\"?"), std::string::npos) << error("mpl");
}

TEST(ShardingWords, FsdpWordsAreAccepted) {
  EXPECT_EQ(canonical("strategy", "FULL_SHARD"), "full_shard");
  EXPECT_EQ(canonical("strategy", "_HYBRID_SHARD_ZERO2"), "hybrid_shard_zero2");
  EXPECT_EQ(canonical("strategy", "zero0"), "no_shard");
  EXPECT_EQ(canonical("strategy", "ZeRO3"), "full_shard");
  EXPECT_EQ(canonical("backward_prefetch", "BACKWARD_PRE"), "pre");
  EXPECT_EQ(canonical("backward_prefetch", "BACKWARD_POST"), "post");
  EXPECT_EQ(canonical("backward_prefetch", "no-prefetch"), "none");
}

TEST(ShardingConsistency, Offload) {
  EXPECT_EQ(contradiction("offload = \"optimizer\""), "");
  EXPECT_EQ(contradiction("offload = \"optimizer\"\nstrategy = \"zero1\"", 2), "");
  EXPECT_EQ(
      contradiction("offload = \"optimizer\"", 2),
      "c:1: offload: with 2 ranks, the optimizer states can be offloaded only if they are sharded, but the strategy "
      "\"no_shard\" does not shard them. Give --strategy zero1, zero2, zero3, or a sharding strategy of FSDP");
  EXPECT_EQ(
      contradiction("offload = \"optimizer,parameters\"\nstrategy = \"zero2\""),
      "c:1: offload: only sharded parameters can be offloaded, but the strategy \"zero2\" does not shard them. Give "
      "--strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2");
  for (const char* strategy : {"zero3", "full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"}) {
    EXPECT_EQ(
        contradiction(std::string("offload = \"optimizer,gradients,parameters\"\nstrategy = \"") + strategy + "\"", 4),
        "");
  }
  EXPECT_NE(contradiction("offload = \"gradients\"\nstrategy = \"zero3\"").find("only together with the optimizer"),
            std::string::npos);
  EXPECT_EQ(contradiction("offload = \"optimizer:file\""),
            "c:1: offload: \"optimizer:file\" needs a folder for its files. Give --offload-dir with a folder on a fast "
            "local disk");
  EXPECT_EQ(contradiction("offload = \"optimizer:file\"\noffload_dir = \"/tmp\""), "");
}

TEST(ShardingConsistency, Groups) {
  EXPECT_EQ(contradiction("shard_group_size = 2\nstrategy = \"hybrid_shard\"", 4), "");
  EXPECT_EQ(
      contradiction("shard_group_size = 2\nstrategy = \"full_shard\"", 4),
      "c:1: shard_group_size: 2 has no effect with the strategy \"full_shard\", because all ranks form one group. "
      "Give --strategy hybrid_shard or hybrid_shard_zero2, or remove this setting");
  EXPECT_EQ(contradiction("shard_group_size = 3\nstrategy = \"hybrid_shard\"", 4),
            "c:1: shard_group_size: 4 ranks cannot be divided into groups of 3. Give a divisor of the number of ranks");
}

TEST(ShardingConsistency, LossScale) {
  EXPECT_EQ(contradiction("loss_scale = 128\nprecision = \"fp16\""), "");
  EXPECT_EQ(contradiction("loss_scale = 128"),
            "c:1: loss_scale: 128 applies only to fp16, but the precision is auto. Give --precision fp16, or "
            "remove this setting");
  EXPECT_EQ(contradiction("loss_scale_hysteresis = 2\nloss_scale_rules = \"deepspeed\""), "");
  EXPECT_EQ(contradiction("loss_scale_hysteresis = 2"),
            "c:1: loss_scale_hysteresis: 2 applies only to DeepSpeed's rules, but loss_scale_rules is \"grad_scaler\". "
            "Give --loss-scale-rules deepspeed, or remove this setting");
  EXPECT_NE(contradiction("min_loss_scale = 0.25").find("applies only to DeepSpeed's rules"), std::string::npos);
}

TEST(LossScaling, ZerosAreTheDefaultsOfTheRules) {
  Settings s;
  EXPECT_EQ(s.loss_scaling().initial_scale, 65536);
  EXPECT_EQ(s.loss_scaling().window, 2000);
  EXPECT_EQ(s.loss_scaling().hysteresis, 1);
  s.loss_scale_rules = LossScaleRules::deepspeed;
  EXPECT_EQ(s.loss_scaling().window, 1000);
  EXPECT_EQ(s.loss_scaling().hysteresis, 2);
  s.loss_scale_window = 5;
  s.loss_scale_hysteresis = 1;
  EXPECT_EQ(s.loss_scaling().window, 5);
  EXPECT_EQ(s.loss_scaling().hysteresis, 1);
}

}  // namespace
}  // namespace tessera
