// Ids and texts must equal the results of Hugging Face's `tokenizers`. tools/compare_tokenizers.py recorded them in
// files <name>.tokenizer.json and <name>.cases.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/data/tokenizer.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return Json::parse(file);
}

void check_decode(const Tokenizer& tokenizer, const Json& expected) {
  const auto ids = expected["ids"].get<std::vector<int32_t>>();
  const auto text = expected["text"].get<std::string>();
  EXPECT_EQ(tokenizer.decode(ids, false), text) << expected;
  EXPECT_EQ(tokenizer.decode(ids, true), expected.value("text_without_special", text)) << expected;
}

void check_kind(const fs::path& folder, const std::string& name) {
  SCOPED_TRACE(name);
  const Tokenizer tokenizer = Tokenizer::load(folder / (name + ".tokenizer.json"));
  const Json cases = read_json(folder / (name + ".cases.json"));
  EXPECT_EQ(tokenizer.vocab_size(), cases["vocab_size"].get<int32_t>());
  ASSERT_FALSE(cases["encode"].empty());

  for (const Json& expected : cases["encode"]) {
    const std::string input =
        expected.contains("input_hex") ? from_hex(expected["input_hex"]) : expected["input"].get<std::string>();
    ASSERT_EQ(tokenizer.encode(input), expected["ids"].get<std::vector<int32_t>>()) << expected;
    if (expected.contains("ids_with_special")) {
      EXPECT_EQ(tokenizer.encode_with_special(input), expected["ids_with_special"].get<std::vector<int32_t>>());
    } else {
      EXPECT_EQ(tokenizer.encode_with_special(input), tokenizer.encode(input));
    }
    check_decode(tokenizer, expected);
  }
  for (const Json& expected : cases["decode"]) check_decode(tokenizer, expected);
}

// Records speed for the comparison only. No test asserts a time.
void record_speed(const fs::path& tokenizer_json, const fs::path& timed) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_json);
  const auto texts = read_json(timed).get<std::vector<std::string>>();
  std::vector<int64_t> times;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& text : texts) tokenizer.encode(text);
    times.push_back(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  }
  testing::Test::RecordProperty("cold_ns", std::to_string(times.front()));
  testing::Test::RecordProperty("best_ns", std::to_string(*std::min_element(times.begin(), times.end())));
}

TEST(TokenizerReferences, IdsAndTextsEqualTheLibrary) {
  const char* other = std::getenv("TESSERA_TOKENIZER_REFERENCES");
  const fs::path folder = other ? fs::path(other) : fs::path(TESSERA_TEST_DIR) / "unit/data/tokenizer_references";
  int num_kinds = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    const size_t suffix = file.find(".tokenizer.json");
    if (suffix == std::string::npos) continue;
    const std::string name = file.substr(0, suffix);
    check_kind(folder, name);
    const fs::path timed = folder / (name + ".timed.json");
    if (fs::exists(timed)) record_speed(entry.path(), timed);
    ++num_kinds;
  }
  EXPECT_GE(num_kinds, other ? 1 : 40);
}

}  // namespace
}  // namespace tessera
