#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/data/bpe_trainer.h"
#include "tessera/data/tokenizer.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// The library is Hugging Face's `tokenizers`. By default, its results are in unit/data/tokenizer_references.
// tools/compare_tokenizers.py makes new results, sets TESSERA_TOKENIZER_REFERENCES to their folder, and loads the
// trained.json that this test writes there.
TEST(TokenizerTrainer, LearnsTheSameVocabularyAsTheLibrary) {
  const char* other = std::getenv("TESSERA_TOKENIZER_REFERENCES");
  const fs::path folder = other ? fs::path(other) : fs::path(TESSERA_TEST_DIR) / "unit/data/tokenizer_references";
  std::ifstream file(folder / "trainer.json");
  ASSERT_TRUE(file);
  const Json reference = Json::parse(file);
  const auto texts = reference["texts"].get<std::vector<std::string>>();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const std::string trained = train_bpe_tokenizer(views, {.vocab_size = reference["vocab_size"].get<int32_t>(),
                                                          .min_frequency = reference["min_frequency"].get<int64_t>()});
  const Json model = Json::parse(trained)["model"];
  EXPECT_EQ(model["merges"], reference["merges"]);
  EXPECT_EQ(model["vocab"], reference["vocab"]);
  if (other) std::ofstream(folder / "trained.json") << trained;

  const Tokenizer tokenizer = Tokenizer::from_json_text(trained, "trained");
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<int32_t>(model["vocab"].size()));
  for (const std::string_view text : views) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), false), text);
}

TEST(TokenizerTrainer, OrdersSpecialTokensBytesAndMerges) {
  const std::vector<std::string_view> texts = {"aaaa aaaa bc bc bc"};
  const Json model = Json::parse(train_bpe_tokenizer(texts, {.vocab_size = 1000}))["model"];
  EXPECT_EQ(model["vocab"]["<unk>"], 0);
  EXPECT_EQ(model["vocab"]["<pad>"], 3);
  EXPECT_EQ(model["vocab"]["!"], 4);
  EXPECT_EQ(model["vocab"]["Ń"], 259);  // the byte AD: of all 256 bytes, its symbol has the largest code point
  // Ġ stands for a space. "aaaa" and " aaaa" together contain the pair "a a" 6 times. The pairs "b c" and "Ġ b" occur 3
  // times each. "b c" is merged first, because the id of b is smaller than the id of Ġ. The pair "aa aa" occurs twice.
  // The pair "Ġ aaaa" occurs only once, so it is not merged: min_frequency is 2 by default.
  EXPECT_EQ(model["merges"], Json::parse(R"(["a a", "b c", "Ġ bc", "aa aa"])"));
}

TEST(TokenizerTrainer, DoesNotDependOnTheOrderOfTheTexts) {
  const std::vector<std::string_view> texts = {"one two three two", "three four", "five two one"};
  const std::vector<std::string_view> reversed(texts.rbegin(), texts.rend());
  EXPECT_EQ(train_bpe_tokenizer(texts, {.vocab_size = 280}), train_bpe_tokenizer(reversed, {.vocab_size = 280}));
}

TEST(TokenizerTrainer, RefusesImpossibleOptions) {
  EXPECT_THROW(train_bpe_tokenizer({}, {.vocab_size = 259}), UsageError);  // 4 special tokens and 256 bytes need 260
  EXPECT_NO_THROW(train_bpe_tokenizer({}, {.vocab_size = 260}));
  EXPECT_THROW(train_bpe_tokenizer({}, {.min_frequency = 0}), UsageError);
  EXPECT_THROW(train_bpe_tokenizer({}, {.special_tokens = {"<s>", "<s>"}}), UsageError);
  EXPECT_THROW(train_bpe_tokenizer({}, {.special_tokens = {""}}), UsageError);
  EXPECT_THROW(train_bpe_tokenizer({}, {.special_tokens = {"\xff"}}), UsageError);
}

}  // namespace
}  // namespace tessera
