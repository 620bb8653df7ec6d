// Tessera's ids and texts must equal the results of Hugging Face's `tokenizers`. tools/compare_tokenizers.py wrote the
// reference files: <name>.tokenizer.json is a tokenizer, and <name>.cases.json contains inputs and the library's
// results.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/random.h"
#include "tessera/data/text.h"
#include "tessera/data/text_stream.h"
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

// Checks a TextStream, which returns a part of the text after each id. Each part consists of complete characters. The
// parts up to any id are a prefix of the complete text. All parts together are the complete text.
void check_stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.add(id);
    ASSERT_EQ(find_invalid_utf8(part), std::string::npos);
    text += part;
  }
  const std::string complete = tokenizer.decode(ids, skip_special);
  ASSERT_TRUE(complete.starts_with(text)) << text << " is not a prefix of " << complete;
  text += stream.finish();
  ASSERT_EQ(text, complete);
}

// Checks streams of the ids in the reference file, and of random ids. Many of the random ids stand for a single byte.
// Such a byte may be only a part of a character.
void check_streams(const Tokenizer& tokenizer, const Json& cases, uint64_t seed) {
  RandomStream random(seed, 9);
  for (const char* kind : {"encode", "decode"}) {
    for (const Json& expected : cases[kind]) {
      check_stream(tokenizer, expected["ids"].get<std::vector<int32_t>>(), random.next_below(2));
    }
  }
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.bytes_of(id).size() == 1) bytes.push_back(id);
  }
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<int32_t> ids;
    for (uint64_t n = random.next_below(40); n > 0; --n) {
      const bool is_byte = !bytes.empty() && random.next_below(4) > 0;
      ids.push_back(is_byte ? bytes[random.next_below(bytes.size())]
                            : static_cast<int32_t>(random.next_below(static_cast<uint64_t>(tokenizer.vocab_size()))));
    }
    check_stream(tokenizer, ids, random.next_below(2));
    // Also checks a text that ends early, possibly within a character.
    ids.resize(ids.size() / 2);
    check_stream(tokenizer, ids, random.next_below(2));
  }
}

// Checks that the bytes of all tokens together are the decoded text. Some decoders drop a space at the start of the
// text. The bytes may therefore start with a space that the text does not have.
void check_bytes(const Tokenizer& tokenizer, const Json& expected) {
  std::string bytes;
  for (const auto id : expected["ids"].get<std::vector<int32_t>>()) bytes += tokenizer.bytes_of(id);
  const auto text = expected["text"].get<std::string>();
  if (find_invalid_utf8(bytes) != std::string::npos) return;  // decode() replaces invalid bytes
  EXPECT_TRUE(bytes == text || bytes == " " + text) << expected << " " << bytes;
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
    check_bytes(tokenizer, expected);
  }
  for (const Json& expected : cases["decode"]) check_decode(tokenizer, expected);
  check_streams(tokenizer, cases, std::hash<std::string>()(name));
}

// Records the speed for tools/compare_tokenizers.py. No test asserts a time.
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
