#include "tessera/settings/resolve.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera {
namespace {

const std::vector<std::string> kVerbs = {"train", "eval", "tokenizer train"};

ResolvedSettings resolve_toml(const std::string& toml, Groups groups = kAllGroups, const std::string& verb = "train") {
  return resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "c.toml")}, groups, verb, kVerbs);
}

std::string error_of(const std::string& toml) {
  try {
    const ResolvedSettings resolved = resolve_toml(toml);
    check_consistent(resolved);
    check_supported(resolved);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Resolve, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  SettingSources sources{.flags = {{find_setting("lr"), "4"}},
                         .environment = {{"TESSERA_LR", "3"}, {"TESSERA_SEED", "3"}, {"LR", "9"}},
                         .file = parse_config("lr = 2\nseed = 2\nepochs = 2", "c.toml")};
  const ResolvedSettings resolved = resolve(sources, kAllGroups, "train", kVerbs);
  EXPECT_EQ(resolved.settings.lr, 4.0);
  EXPECT_EQ(resolved.settings.seed, 3);
  EXPECT_EQ(resolved.settings.epochs, 2.0);
  EXPECT_EQ(resolved.settings.batch_size, 4);
  EXPECT_EQ(resolved.origins.at("lr").to_string(), "flag --lr");
  EXPECT_EQ(resolved.origins.at("seed").to_string(), "environment TESSERA_SEED");
  EXPECT_EQ(resolved.origins.at("epochs").to_string(), "c.toml:3");
  EXPECT_EQ(resolved.origins.at("batch_size").to_string(), "default");
  EXPECT_EQ(resolved.where("epochs"), "c.toml:3: epochs");
  EXPECT_EQ(resolved.where("batch_size"), "--batch-size");
  EXPECT_TRUE(resolved.is_given("lr"));
  EXPECT_FALSE(resolved.is_given("batch_size"));
}

// Micro-batches are filled up to batch_size samples or to batch_tokens tokens. After resolve() and
// check_consistent(), exactly one of the two settings is positive.
TEST(Resolve, MicroBatchesBySamplesOrByTokens) {
  const auto given = [](const std::string& toml, std::vector<std::pair<const char*, const char*>> flags) {
    SettingSources sources{.flags = {}, .environment = {}, .file = parse_config(toml, "c.toml")};
    for (const auto& [name, value] : flags) sources.flags.emplace_back(find_setting(name), value);
    ResolvedSettings resolved = resolve(sources, kAllGroups, "train", kVerbs);
    check_consistent(resolved);
    return resolved;
  };
  const auto sizes = [](const ResolvedSettings& r) {
    return std::pair(r.settings.batch_size, r.settings.batch_tokens);
  };
  using P = std::pair<int64_t, int64_t>;
  EXPECT_EQ(sizes(given("", {})), P(4, 0));
  EXPECT_EQ(sizes(given("batch_tokens = 600", {})), P(0, 600));
  EXPECT_EQ(sizes(given("batch_size = 2", {{"batch_tokens", "600"}})), P(0, 600));
  EXPECT_EQ(sizes(given("batch_tokens = 600", {{"batch_size", "2"}})), P(2, 0));
  EXPECT_EQ(sizes(given("batch_tokens = 600", {{"batch_tokens", "0"}})), P(4, 0));
  EXPECT_EQ(sizes(given("batch_tokens = 600\nbatch_size = 0", {{"batch_size", "0"}})), P(0, 600));
  const ResolvedSettings r = given("batch_tokens = 600", {});
  EXPECT_EQ(r.origins.at("batch_size").to_string(), "c.toml:1");
  EXPECT_EQ(r.settings.batch_words(), "up to 600 x 1 tokens");
  EXPECT_EQ(sizes(resolve_toml(resolved_config_text(r))), P(0, 600));
  EXPECT_EQ(sizes(resolve_toml(resolved_config_text(given("", {})))), P(4, 0));
  EXPECT_EQ(error_of("batch_tokens = 600\nbatch_size = 2"),
            "c.toml:1: batch_tokens: 600 contradicts c.toml:2: batch_size 2. Give only one of the two");
  EXPECT_EQ(
      error_of("batch_size = 0"),
      "c.toml:1: batch_size: must be at least 1, got 0. Give --batch-size, or fill micro-batches by --batch-tokens");
  EXPECT_EQ(error_of("batch_tokens = 600\nmax_length = 601"),
            "c.toml:1: batch_tokens: a micro-batch of 600 tokens has no room for a sample of max_length 601 (c.toml:2: "
            "max_length). Give at least 601, or a smaller --max-length");
  EXPECT_NE(error_of("batch_tokens = 600\nepochs = 1e6"), "");
  EXPECT_EQ(error_of("batch_tokens = 600\nepochs = 1e6\nmax_steps = 3"), "");
}

TEST(Resolve, AWrongValueIsAnErrorEvenBelowAStrongerLayer) {
  SettingSources sources{.flags = {{find_setting("lr"), "1"}}, .environment = {}, .file = parse_config("lr = -1", "c")};
  EXPECT_THROW(resolve(sources, kAllGroups, "train", kVerbs), UsageError);
}

TEST(Resolve, SettingsOfOtherVerbsAreCheckedButNotTaken) {
  const ResolvedSettings resolved = resolve_toml("lr = 1\nseed = 7", kMachine);
  EXPECT_EQ(resolved.settings.lr, Settings{}.lr);
  EXPECT_EQ(resolved.settings.seed, 7);
  EXPECT_EQ(resolved.origins.count("lr"), 0u);
  EXPECT_THROW(resolve_toml("lr = -1\nseed = 7", kMachine), UsageError);
}

TEST(Resolve, TheTableOfTheVerbGoesFirst) {
  const char* toml = "[train]\nlr = 2\n[eval]\nlr = 3\n[\"tokenizer train\"]\nlr = 4\n";
  EXPECT_EQ(resolve_toml(std::string("lr = 1\n") + toml, kAllGroups, "train").settings.lr, 2.0);
  EXPECT_EQ(resolve_toml(std::string("lr = 1\n") + toml, kAllGroups, "eval").settings.lr, 3.0);
  EXPECT_EQ(resolve_toml(std::string("lr = 1\n") + toml, kAllGroups, "tokenizer train").settings.lr, 4.0);
  EXPECT_EQ(error_of("[trian]\nlr = 1"),
            "c.toml:2: [trian]: unknown table; a table must have the name of a verb, or fsdp. Did you mean \"train\"?");
}

TEST(Resolve, UnknownAndRepeatedKeys) {
  EXPECT_EQ(error_of("\n\nmax_lenght = 3"), "c.toml:3: max_lenght: unknown setting. Did you mean \"max_length\"?");
  EXPECT_NE(error_of("lr = 1\nlearning_rate = 1").find("is already set"), std::string::npos);
  EXPECT_EQ(error_of("lr = 1\n[train]\nlearning-rate = 1"), "");
}

TEST(Resolve, UnknownVariablesWarn) {
  SettingSources sources{.flags = {}, .environment = {{"TESSERA_LRR", "1"}, {"OTHER", "x"}}, .file = {}};
  EXPECT_EQ(
      resolve(sources, kAllGroups, "train", kVerbs).warnings,
      std::vector<std::string>{
          "TESSERA_LRR: this environment variable is not a setting and is ignored. Did you mean \"TESSERA_LR\"?"});
}

TEST(Resolve, DefaultsAreConsistentAndSupported) {
  EXPECT_EQ(error_of(""), "");
}

TEST(Resolve, WhatIsNotSupportedSaysWhatIs) {
  EXPECT_EQ(error_of("precision = \"TF32\"\ndevice = \"cpu\""),
            "c.toml:1: precision: \"tf32\" needs a GPU. The CPU supports: fp32, fp16, bf16");
  EXPECT_EQ(error_of("strategy = \"zero0\""), "");
}

TEST(Resolve, PrintedSettingsReadBackAsTheSame) {
  ResolvedSettings resolved = resolve_toml(
      "lr = 0.1\nepochs = 2\nshuffle = false\nsave_dtype = \"bf16\"\nprompt = \"\"\"a # \\\"b\\\"\n\\\\ \\u0001 "
      "é\"\"\"");
  resolved.origins["lr"].place = "a\nb.toml:1";  // a line break in a file name
  const ResolvedSettings again = resolve_toml(resolved_config_text(resolved));
  for (const auto& setting : all_settings()) {
    EXPECT_EQ(setting.get(again.settings), setting.get(resolved.settings)) << setting.name;
  }
}

TEST(Resolve, JsonHasTheSettingsOfTheVerbInOrder) {
  // 2^53 + 1: the JSON must not convert it to a double, which would round it.
  const ResolvedSettings resolved = resolve_toml("seed = 9007199254740993", kMachine);
  const auto json = resolved_config_json(resolved);
  std::vector<std::string> names;
  for (const auto& [name, _] : json.items()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"device", "precision", "threads", "instruction_set", "seed", "fp16", "bf16"}));
  EXPECT_EQ(json["seed"].dump(), R"({"value":9007199254740993,"origin":"c.toml:1"})");
}

}  // namespace
}  // namespace tessera
