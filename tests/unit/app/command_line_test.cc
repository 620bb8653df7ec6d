#include "tessera/app/command_line.h"

#include <gtest/gtest.h>

#include <new>
#include <random>

#include "tessera/base/error.h"
#include "tessera/settings/verb_groups.h"

namespace tessera {
namespace {

const Verb kTrain{
    .name = "train",
    .help = "Train",
    .groups = kAllGroups,
    .required = {"dataset"},
    .run = [](const Invocation& invocation) { return static_cast<int>(invocation.settings().batch_size); }};

std::string flag_value(const std::vector<std::string>& words, const std::string& name) {
  for (const auto& [setting, text] : parse_flags(words, kTrain, kAllGroups, {kTrain}).values) {
    if (setting->name == name) return text;
  }
  return "(none)";
}

std::string error_of(const std::vector<std::string>& words) {
  try {
    run_command_line(words, {}, {kTrain});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Verbs, AreTheTablesOfConfigurationFiles) {
  EXPECT_EQ(names_of(all_verbs()), names_of_verbs());
}

TEST(Flags, Spellings) {
  EXPECT_EQ(flag_value({"--batch-size", "8"}, "batch_size"), "8");
  EXPECT_EQ(flag_value({"--batch_size=8"}, "batch_size"), "8");
  EXPECT_EQ(flag_value({"--per_device-train_batch_size=8"}, "batch_size"), "8");
  EXPECT_EQ(flag_value({"--lr", "-1"}, "lr"), "-1");
  EXPECT_EQ(flag_value({"--lr=1", "--learning-rate", "2"}, "lr"), "2");
  EXPECT_EQ(flag_value({}, "lr"), "(none)");
}

TEST(Flags, ValuesAreTakenAsTheyAre) {
  EXPECT_EQ(flag_value({"--prompt", "[a,b]"}, "prompt"), "[a,b]");
  EXPECT_EQ(flag_value({"--prompt=--a_b=c"}, "prompt"), "--a_b=c");
  EXPECT_EQ(flag_value({"--prompt", "a_b"}, "prompt"), "a_b");
  EXPECT_EQ(flag_value({"--prompt", "-x"}, "prompt"), "-x");
  EXPECT_EQ(flag_value({"--prompt", "\"quoted\""}, "prompt"), "\"quoted\"");
  EXPECT_EQ(flag_value({"--prompt", "{}"}, "prompt"), "{}");
  EXPECT_EQ(flag_value({"--prompt", "%%"}, "prompt"), "%%");
  EXPECT_EQ(flag_value({"--prompt", "a\nb"}, "prompt"), "a\nb");
}

TEST(Flags, WordsOfAVerbWithOperands) {
  Verb verb = kTrain;
  verb.operands = "RUN...";
  const ParsedFlags parsed = parse_flags({"a", "--lr", "1", "run.toml", "b", "--", "c"}, verb, kAllGroups, {verb});
  EXPECT_EQ(parsed.operands, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(parsed.config_file, "run.toml");
  EXPECT_THROW(parse_flags({"a.toml", "b.toml"}, verb, kAllGroups, {verb}), UsageError);
  EXPECT_THROW(parse_flags({"a", "--no-such-flag", "b"}, verb, kAllGroups, {verb}), UsageError);
  EXPECT_TRUE(parse_flags({"run.toml"}, kTrain, kAllGroups, {kTrain}).operands.empty());
}

TEST(Flags, AnEmptyValueTakesNothingElse) {
  const ParsedFlags parsed =
      parse_flags({"--prompt=", "run.toml", "--tokenizer", "", "--json"}, kTrain, kAllGroups, {kTrain});
  EXPECT_EQ(parsed.config_file, "run.toml");
  ASSERT_EQ(parsed.values.size(), 3u);  // in the order of the declared settings, not of the words
  EXPECT_EQ(parsed.values[0].first->name, "tokenizer");
  EXPECT_EQ(parsed.values[0].second, "");
  EXPECT_EQ(parsed.values[1].first->name, "prompt");
  EXPECT_EQ(parsed.values[1].second, "");
  EXPECT_EQ(parsed.values[2].first->name, "json");
}

TEST(Flags, Booleans) {
  EXPECT_EQ(flag_value({"--shuffle"}, "shuffle"), "true");
  EXPECT_EQ(flag_value({"--no-shuffle"}, "shuffle"), "false");
  EXPECT_EQ(flag_value({"--no_shuffle"}, "shuffle"), "false");
  EXPECT_EQ(flag_value({"--no-shuffle", "--shuffle"}, "shuffle"), "true");
  EXPECT_EQ(flag_value({"--shuffle=false"}, "shuffle"), "false");
  EXPECT_EQ(parse_flags({"--shuffle", "run.toml"}, kTrain, kAllGroups, {kTrain}).config_file, "run.toml");
}

TEST(Flags, WordsAfterTwoDashesAreNoFlags) {
  EXPECT_EQ(parse_flags({"--", "--odd.toml"}, kTrain, kAllGroups, {kTrain}).config_file, "--odd.toml");
}

TEST(CommandLine, RunsTheVerbAndReturnsItsCode) {
  EXPECT_EQ(run_command_line({"train", "--dataset", "x", "--batch-size", "9"}, {}, {kTrain}), 9);
  EXPECT_EQ(run_command_line({"train", "--dataset", "x"}, {{"TESSERA_BATCH_SIZE", "7"}}, {kTrain}), 7);
}

TEST(CommandLine, RequiredSettings) {
  EXPECT_EQ(error_of({"train"}), "--dataset: is required by train");
  EXPECT_EQ(error_of({"train", "--dataset="}), error_of({"train"}));
}

TEST(CommandLine, VerbsOfTwoWords) {
  Verb tokenizer_train = kTrain, tokenize = kTrain;
  tokenizer_train.name = "tokenizer train";
  tokenizer_train.run = [](const Invocation&) { return 31; };
  tokenize.name = "tokenize";
  tokenize.run = [](const Invocation&) { return 32; };
  const std::vector<Verb> verbs = {kTrain, tokenize, tokenizer_train};
  EXPECT_EQ(run_command_line({"tokenizer", "train", "--dataset=x"}, {}, verbs), 31);
  EXPECT_EQ(run_command_line({"tokenize", "--dataset=x"}, {}, verbs), 32);
  try {
    run_command_line({"tokenizer", "trian"}, {}, verbs);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tokenizer trian: unknown verb. Did you mean \"tokenizer train\"? Use one of: train, tokenize, "
                 "tokenizer train");
  }
}

TEST(CommandLine, AVerbAboutAVerbHasItsSettingsAndNeedsNone) {
  Verb config = kTrain;
  config.name = "config";
  config.required = {};
  config.about_verb = true;
  config.run = [](const Invocation& invocation) {
    return invocation.subject->name == "eval" && invocation.resolved.origins.count("eval_batch_size") == 1 &&
                   invocation.resolved.origins.count("lr") == 0
               ? 41
               : 42;
  };
  Verb eval = kTrain;
  eval.name = "eval";
  eval.groups = kEvalBatch;
  EXPECT_EQ(run_command_line({"config", "eval", "--eval-batch-size", "2", "--json"}, {}, {kTrain, eval, config}), 41);
  EXPECT_EQ(run_command_line({"config", "--lr", "2"}, {}, {kTrain, eval, config}), 42);
  EXPECT_THROW(run_command_line({"config", "eval", "--lr", "2"}, {}, {kTrain, eval, config}), UsageError);
}

TEST(CommandLine, ExceptionsBecomeExitCodes) {
  const auto code_of = [](int (*run)(const Invocation&)) {
    Verb verb = kTrain;
    verb.run = run;
    testing::internal::CaptureStderr();
    const int code = guarded_run({"train", "--dataset=x"}, {}, {verb});
    return std::to_string(code) + " " + testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(code_of([](const Invocation&) -> int { throw InputError("f.json:3", "is odd", "Mend it"); }),
            "3 error: f.json:3: is odd. Mend it\n");
  EXPECT_EQ(code_of([](const Invocation&) -> int { throw RunError("", "broke"); }), "1 error: broke\n");
  EXPECT_EQ(code_of([](const Invocation&) -> int { throw CommunicationError("rank 3", "is gone"); }),
            "5 error: rank 3: is gone\n");
  EXPECT_EQ(
      code_of([](const Invocation&) -> int { throw std::bad_alloc(); }),
      "4 error: out of host memory. Free memory on this machine, or use fewer ranks per machine or smaller batches\n");
  EXPECT_EQ(code_of([](const Invocation&) -> int { throw std::runtime_error("odd"); }),
            "1 error: an internal error of Tessera or one of its libraries (odd). Report the command and its output\n");
  EXPECT_EQ(code_of([](const Invocation&) -> int { throw 3; }),
            "1 error: an unknown exception. Report the command and its output\n");
}

// Any sequence of words prints help, runs a verb, or causes a UsageError with a message.
TEST(CommandLine, RandomWords) {
  std::vector<Verb> verbs = all_verbs();
  for (Verb& verb : verbs) {
    verb.run = [](const Invocation&) { return 0; };
    verb.runs_as_ranks = false;
  }
  const std::vector<std::string> pool = {
      "train",    "eval",      "tokenizer", "generate",   "config",       "help",   "--help", "--help=all", "all",
      "-h",       "--model",   "a",         "bloom-560m", "--dataset",    "b.json", "--lr",   "--lr=",      "1e-4",
      "2k",       "--shuffle", "false",     "--no-lr",    "--shuffle=",   "-lr",    "--fp16", "--",         "-",
      "run.toml", "",          "=",         "--=",        "--offload=a,", "lr=1",   "é",      "--no-",      "--prompt"};
  std::mt19937 source(11);
  testing::internal::CaptureStdout();
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> words;
    std::string shown;
    for (size_t length = source() % 7; words.size() < length;) {
      words.push_back(pool[source() % pool.size()]);
      shown += " \"" + words.back() + "\"";
    }
    try {
      EXPECT_EQ(run_command_line(words, {}, verbs), 0) << shown;
    } catch (const UsageError& error) {
      EXPECT_GT(std::string(error.what()).size(), 10u) << shown;
    }
  }
  testing::internal::GetCapturedStdout();
}

TEST(CommandLine, TheTableOfVerbsIsSound) {
  for (const auto& verb : all_verbs()) {
    EXPECT_NE(verb.run, nullptr) << verb.name;
    EXPECT_FALSE(verb.help.empty() || verb.help.ends_with('.')) << verb.name;
    for (const auto& name : verb.required) {
      const Setting* setting = find_setting(name);
      EXPECT_TRUE(setting && (setting->group & verb.groups)) << verb.name << " requires " << name;
    }
  }
}

}  // namespace
}  // namespace tessera
