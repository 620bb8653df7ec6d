#include "tessera/settings/setting.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <limits>
#include <regex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
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

TEST(Settings, NamesAreUniqueAndSnakeCase) {
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

TEST(Settings, EveryDefaultIsValidAndSurvivesText) {
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

TEST(Settings, GroupsAreShownTogether) {
  std::set<Groups> closed;
  Groups current = 0;
  for (const auto& setting : all_settings()) {
    if (setting.group == current) continue;
    EXPECT_TRUE(closed.insert(setting.group).second) << setting.name << " is separate from the rest of its group";
    current = setting.group;
  }
}

TEST(Settings, EveryWordOfAChoiceSetsAndGets) {
  for (const auto& setting : all_settings()) {
    for (const auto& word : setting.choices) {
      Settings settings;
      setting.set(settings, word);
      EXPECT_EQ(setting.get(settings), SettingValue(word)) << setting.name;
    }
  }
}

// The rooms below `settings` name settings in errors. Each of these names must be the name of a setting.
TEST(Settings, ErrorsNameOnlySettings) {
  const std::regex named(R"re((?:\boption|option_place|Fault\{|Fault )\(?"([^"]*)")re");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(TESSERA_TEST_DIR "/../tessera")) {
    const std::string extension = file.path().extension().string();
    if (extension != ".cc" && extension != ".cu") continue;
    if (file.path().parent_path().filename() == "jinja") continue;  // it has another Fault
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

TEST(Settings, AreFoundByAnySpelling) {
  EXPECT_EQ(find_setting("grad-accum")->name, "grad_accum");
  EXPECT_EQ(find_setting("gradient_accumulation-steps")->name, "grad_accum");
  EXPECT_EQ(find_setting("learning_rate")->name, "lr");
  EXPECT_EQ(find_setting("Lr"), nullptr);
  EXPECT_EQ(find_setting("batch_size")->flag(), "--batch-size");
  EXPECT_EQ(find_setting("batch_size")->environment_variable(), "TESSERA_BATCH_SIZE");
}

TEST(SettingValue, ChoicesTakeDashesAndCapitals) {
  EXPECT_EQ(parse_value(*find_setting("strategy"), "FULL-SHARD", ""), SettingValue("full_shard"));
  EXPECT_EQ(parse_value(*find_setting("objective"), "causal-lm", ""), SettingValue("causal_lm"));
  EXPECT_EQ(
      error_of("objective", "completon"),
      "here: unknown value \"completon\". Did you mean \"completion\"? Use one of: completion, causal_lm, separate, "
      "prompt");
}

TEST(SettingValue, WholeNumbersAreRealsButNotTheOtherWay) {
  EXPECT_EQ(checked_value(*find_setting("lr"), int64_t{1}, ""), SettingValue(1.0));
  EXPECT_EQ(error_of("batch_size", 1.0), "here: must be a whole number, got 1.0");
  EXPECT_EQ(error_of("batch_size", true), "here: must be a whole number, got true");
  EXPECT_EQ(error_of("shuffle", int64_t{1}), "here: must be true or false, got 1");
}

TEST(SettingValue, Bounds) {
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

TEST(SettingValue, TextOfNumbers) {
  const Setting& lr = *find_setting("lr");
  EXPECT_EQ(parse_value(lr, "+5e-5", ""), SettingValue(5e-5));
  for (const char* text : {"", " 1", "1 ", "1e", "0x1p3z", "1,5", "1e999"}) {
    EXPECT_THROW(parse_value(lr, text, ""), UsageError) << text;
  }
  EXPECT_EQ(parse_value(*find_setting("shuffle"), "off", ""), SettingValue(false));
}

TEST(SettingValue, TextMustBeUtf8) {
  EXPECT_EQ(error_of("model", "\xc3"), "here: is not valid UTF-8");
  EXPECT_EQ(error_of("model", "gru\xc3\x9f"), "");
}

TEST(SettingValue, ErrorsQuoteControlCharactersAndShorten) {
  EXPECT_EQ(error_of("lr", "\x1b[31m"), "here: must be a number, got \"\\u001B[31m\"");
  EXPECT_LT(error_of("lr", std::string(1000, 'x')).size(), 200u);
  std::string letters;
  for (int i = 0; i < 100; ++i) letters += "é";
  for (const std::string& text : {letters, "x" + letters}) {
    const std::string error = error_of("lr", text);
    EXPECT_TRUE(is_utf8(error)) << error;
  }
}

TEST(TomlText, RealsHaveAPointOrAnExponent) {
  EXPECT_EQ(toml_text(3.0), "3.0");
  EXPECT_EQ(toml_text(5e-5), "5e-05");
  EXPECT_EQ(toml_text(1e22), "1e+22");
  EXPECT_EQ(toml_text(int64_t{3}), "3");
  EXPECT_EQ(toml_text("a\"\\\n\t\x01"), "\"a\\\"\\\\\\n\\t\\u0001\"");
}

}  // namespace
}  // namespace tessera
