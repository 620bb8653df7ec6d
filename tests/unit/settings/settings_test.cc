#include "tessera/settings/setting.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <limits>
#include <regex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/data/tokenizer_text.h"

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

TEST(Settings, names_are_unique_and_snake_case) {
  std::set<std::string> seen;
  for (const auto& setting : all_settings()) {
    std::vector<std::string> names = setting.aliases;
    names.push_back(setting.name);
    for (const auto& name : names) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      for (const char c : name) EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_') << name;
      EXPECT_FALSE(name.starts_with("no_")) << name << " would collide with the flag --no-... of a boolean";
    }
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_NE(std::string(title_of(setting.group)), "") << setting.name;
  }
}

TEST(Settings, every_default_is_valid_and_survives_text) {
  for (const auto& setting : all_settings()) {
    Settings settings;
    const SettingValue preset = setting.get(settings);
    EXPECT_EQ(checked_value(setting, preset, ""), preset) << setting.name;
    setting.set(settings, preset);
    EXPECT_EQ(setting.get(settings), preset) << setting.name;
    if (!std::holds_alternative<std::string>(preset)) {
      EXPECT_EQ(parse_value(setting, plain_text(preset), ""), preset) << setting.name;
    }
  }
}

TEST(Settings, groups_are_shown_together) {
  std::set<Groups> closed;
  Groups current = 0;
  for (const auto& setting : all_settings()) {
    if (setting.group == current) continue;
    EXPECT_TRUE(closed.insert(setting.group).second) << setting.name << " is separate from the rest of its group";
    current = setting.group;
  }
}

TEST(Settings, every_word_of_a_choice_sets_and_gets) {
  for (const auto& setting : all_settings()) {
    for (const auto& word : setting.choices) {
      Settings settings;
      setting.set(settings, word);
      EXPECT_EQ(setting.get(settings), SettingValue(word)) << setting.name;
    }
  }
}

// The rooms below `settings` name settings in errors. Each of these names must be the name of a setting.
TEST(Settings, errors_name_only_settings) {
  const std::regex named(R"re((?:\boption|option_place|Fault\{|Fault )\(?"([^"]*)")re");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(TESSERA_TEST_DIR "/../tessera")) {
    const std::string extension = file.path().extension().string();
    if (extension != ".cc" && extension != ".cu") continue;
    const std::string text = read_file(file.path().string(), {});
    if (text.find("option_names.h\"") == std::string::npos && text.find("Fault") == std::string::npos) continue;
    for (std::sregex_iterator match(text.begin(), text.end(), named), end; match != end; ++match) {
      const std::string name = (*match)[1];
      const Setting* setting = find_setting(name);
      EXPECT_TRUE(setting && setting->name == name) << file.path() << ": " << name;
      names.insert(name);
    }
  }
  EXPECT_GT(names.size(), 40u);
}

TEST(Settings, are_found_by_any_spelling) {
  EXPECT_EQ(find_setting("grad-accum")->name, "grad_accum");
  EXPECT_EQ(find_setting("gradient_accumulation-steps")->name, "grad_accum");
  EXPECT_EQ(find_setting("learning_rate")->name, "lr");
  EXPECT_EQ(find_setting("Lr"), nullptr);
  EXPECT_EQ(find_setting("batch_size")->flag(), "--batch-size");
  EXPECT_EQ(find_setting("batch_size")->environment_variable(), "TESSERA_BATCH_SIZE");
}

TEST(SettingValue, choices_take_dashes_and_capitals) {
  EXPECT_EQ(parse_value(*find_setting("strategy"), "FULL-SHARD", ""), SettingValue("full_shard"));
  EXPECT_EQ(parse_value(*find_setting("objective"), "causal-lm", ""), SettingValue("causal_lm"));
  EXPECT_EQ(
      error_of("objective", "completon"),
      "here: unknown value \"completon\". Did you mean \"completion\"? Use one of: completion, causal_lm, separate, "
      "prompt");
}

TEST(SettingValue, whole_numbers_are_reals_but_not_the_other_way) {
  EXPECT_EQ(checked_value(*find_setting("lr"), int64_t{1}, ""), SettingValue(1.0));
  EXPECT_EQ(error_of("batch_size", 1.0), "here: must be a whole number, got 1.0");
  EXPECT_EQ(error_of("batch_size", true), "here: must be a whole number, got true");
  EXPECT_EQ(error_of("shuffle", int64_t{1}), "here: must be true or false, got 1");
}

TEST(SettingValue, bounds) {
  EXPECT_EQ(error_of("batch_size", int64_t{1}), "");
  EXPECT_EQ(error_of("grad_accum", int64_t{0}), "here: must be at least 1, got 0");
  EXPECT_EQ(error_of("batch_size", int64_t{1} << 31), "here: must be at most 2147483647, got 2147483648");
  EXPECT_EQ(error_of("beta2", 0.0), "");
  EXPECT_EQ(error_of("beta2", 1.0), "here: must be less than 1, got 1.0");
  EXPECT_EQ(error_of("adam_epsilon", 0.0), "here: must be greater than 0, got 0.0");
  EXPECT_EQ(error_of("lr", std::numeric_limits<double>::quiet_NaN()), "here: must be a finite number, got nan");
  EXPECT_EQ(error_of("lr", -std::numeric_limits<double>::infinity()), "here: must be a finite number, got -inf");
  EXPECT_EQ(error_of("seed", std::numeric_limits<int64_t>::min()),
            "here: must be at least 0, got -9223372036854775808");
}

TEST(SettingValue, text_of_numbers) {
  const Setting& lr = *find_setting("lr");
  EXPECT_EQ(parse_value(lr, "+5e-5", ""), SettingValue(5e-5));
  for (const char* text : {"", " 1", "1 ", "1e", "0x1p3z", "1,5", "1e999"}) {
    EXPECT_THROW(parse_value(lr, text, ""), UsageError) << text;
  }
  EXPECT_EQ(parse_value(*find_setting("shuffle"), "off", ""), SettingValue(false));
}

TEST(SettingValue, text_must_be_utf8) {
  EXPECT_EQ(error_of("model", "\xc3"), "here: is not valid UTF-8");
  EXPECT_EQ(error_of("model", "gru\xc3\x9f"), "");
}

TEST(SettingValue, errors_quote_control_characters_and_shorten) {
  EXPECT_EQ(error_of("lr", "\x1b[31m"), "here: must be a number, got \"\\u001B[31m\"");
  EXPECT_LT(error_of("lr", std::string(1000, 'x')).size(), 200u);
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += "é";
  for (const std::string& text : {letters, "x" + letters}) {
    const std::string error = error_of("lr", text);
    EXPECT_TRUE(is_utf8(error)) << error;
  }
}

TEST(TomlText, reals_have_a_point_or_an_exponent) {
  EXPECT_EQ(toml_text(3.0), "3.0");
  EXPECT_EQ(toml_text(5e-5), "5e-05");
  EXPECT_EQ(toml_text(1e22), "1e+22");
  EXPECT_EQ(toml_text(int64_t{3}), "3");
  EXPECT_EQ(toml_text("a\"\\\n\t\x01"), "\"a\\\"\\\\\\n\\t\\u0001\"");
}

TEST(Suggest, distance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("train", "train"), 0);
  EXPECT_EQ(edit_distance("tarin", "train"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Suggest, only_what_is_close) {
  const std::vector<std::string> words = {"train", "eval", "generate"};
  EXPECT_EQ(closest_word("trian", words), "train");
  EXPECT_EQ(closest_word("gen", words), "generate");
  EXPECT_EQ(closest_word("ge", words), "");
  EXPECT_EQ(closest_word("export", words), "");
  EXPECT_EQ(closest_word("", words), "");
  EXPECT_EQ(closest_word(std::string(100000, 'x'), words), "");
  EXPECT_EQ(did_you_mean("evla", words), "Did you mean \"eval\"?");
  const std::vector<std::string> names = {
      "--batch-size", "--output-dir", "--eos-token",    "--max-length", "--threads",    "--num-heads",
      "--train-size", "--lr",         "--beta1",        "--model",      "--log-format", "--save-steps",
      "--epochs",     "--fp16",       "attention_bias", "rope_theta",   "rms_norm_eps"};
  for (const auto& [word, meant] : {
           std::pair{"--bacth_sise", "--batch-size"},
           std::pair{"--batchsize", "--batch-size"},
           std::pair{"--Batch-Size", "--batch-size"},
           std::pair{"--out-dir", "--output-dir"},
           std::pair{"--max-len", "--max-length"},
           std::pair{"--max-seq-length", "--max-length"},
           std::pair{"--num-epochs", "--epochs"},
           std::pair{"--num-threads", "--threads"},
           std::pair{"--beta-1", "--beta1"},
           std::pair{"--lrr", "--lr"},
           std::pair{"rope_tetha", "rope_theta"},
           std::pair{"rmsNormEpsilon", ""},
           std::pair{"rms_norm_epsilon", "rms_norm_eps"},
           // Other words and other digits are no typing errors.
           std::pair{"attention_sinks", ""},
           std::pair{"--pad-token", ""},
           std::pair{"--train-file", ""},
           std::pair{"--log-file", ""},
           std::pair{"--save-stats", ""},
           std::pair{"--nodes", ""},
           std::pair{"--beta3", ""},
           std::pair{"--fp15", ""},
           std::pair{"--xy", ""},
       }) {
    EXPECT_EQ(closest_word(word, names), meant) << word;
  }
}

}  // namespace
}  // namespace tessera
