#include "tessera/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/base/thread_pool.h"
#include "tessera/data/bpe_trainer.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string sample_json() {
  const std::vector<std::string_view> texts = {"the cat sat on the mat, the cat sat", "that thin cat"};
  return train_bpe_tokenizer(texts, {.vocab_size = 300});
}

Tokenizer sample() {
  return Tokenizer::from_json_text(sample_json(), "sample");
}

TEST(Tokenizer, KeepsItsTextAndKnowsItsTokens) {
  const std::string json = sample_json();
  Tokenizer tokenizer = Tokenizer::from_json_text(json, "sample");
  const Tokenizer moved = std::move(tokenizer);
  EXPECT_EQ(moved.json_text(), json);
  EXPECT_EQ(moved.id_of("</s>"), 2);
  EXPECT_EQ(moved.id_of("Ġcat"), moved.encode(" cat").at(0));
  EXPECT_EQ(moved.id_of("no such token"), std::nullopt);
  EXPECT_EQ(moved.vocab_size(), static_cast<int32_t>(Json::parse(json)["model"]["vocab"].size()));
}

TEST(Tokenizer, ReportsUnusedKeys) {
  EXPECT_TRUE(sample().unused_keys().empty());
  Json json = Json::parse(sample_json());
  json["truncation"] = {{"max_length", 5}};
  json["padding"] = {{"strategy", "BatchLongest"}};
  EXPECT_THAT(Tokenizer::from_json_text(json.dump(), "sample").unused_keys(), ElementsAre("truncation", "padding"));
}

TEST(Tokenizer, CutsOutAddedTokensAndSkipsThemOnDemand) {
  const Tokenizer tokenizer = sample();
  const auto ids = tokenizer.encode("the cat</s><pad>");
  EXPECT_EQ(ids[ids.size() - 2], 2);
  EXPECT_EQ(ids.back(), 3);
  EXPECT_EQ(tokenizer.decode(ids, false), "the cat</s><pad>");
  EXPECT_EQ(tokenizer.decode(ids, true), "the cat");
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
}

TEST(Tokenizer, DecodesInvalidUtf8AndUnknownIds) {
  const Tokenizer tokenizer = sample();
  const auto ids = tokenizer.encode("\u4e2d");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer.decode(std::span(ids).first(2), false), "\uFFFD");
  EXPECT_EQ(tokenizer.bytes_of(ids[0]) + tokenizer.bytes_of(ids[1]) + tokenizer.bytes_of(ids[2]), "\u4e2d");
  EXPECT_EQ(tokenizer.bytes_of(ids[0]), "\xE4");
  EXPECT_EQ(tokenizer.bytes_of(-1) + tokenizer.bytes_of(tokenizer.vocab_size()), "");
  const std::vector<int32_t> strange = {-100, tokenizer.vocab_size(), INT32_MAX, INT32_MIN};
  EXPECT_EQ(tokenizer.decode(strange, false), "");
}

TEST(Tokenizer, RoundTripKeepsEveryUtf8Text) {
  const Tokenizer tokenizer = sample();
  RandomStream random(7, 0);
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (uint64_t n = random.next_below(30); n > 0; --n) bytes += static_cast<char>(random.next_below(256));
    const std::string text = tokenizer.decode(tokenizer.encode(bytes), false);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), false), text);
  }
}

// The tokenizer keeps the ids of words in a cache. When the cache is full, the tokenizer clears it. The 70000 words
// here do not fit into the cache. The ids of a word must not depend on the words that were encoded before.
TEST(Tokenizer, IdsDoNotDependOnTheWordCache) {
  const Tokenizer tokenizer = sample();
  std::string text;
  for (int i = 0; i < 70000; ++i) text += " that" + std::to_string(i);
  const auto ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.encode(text), ids);
  EXPECT_EQ(tokenizer.decode(ids, false), text);
  EXPECT_EQ(tokenizer.encode(" that69999"), sample().encode(" that69999"));
}

// The word has 2 MB. An algorithm whose time grows with the square of the length would take hours.
TEST(Tokenizer, EncodesOneVeryLongWord) {
  const Tokenizer tokenizer = sample();
  std::string word;
  for (int i = 0; i < 500000; ++i) word += "that";
  const auto ids = tokenizer.encode(word);
  const auto one = tokenizer.encode("that");
  EXPECT_EQ(ids.size(), 500000 * one.size());
  EXPECT_EQ(tokenizer.decode(ids, false), word);
}

TEST(Tokenizer, ThreadsReturnTheSameIds) {
  const Tokenizer tokenizer = sample();
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back("the mat " + std::to_string(i * i) + " sat, that cat");
  std::vector<std::vector<int32_t>> all(texts.size());
  ThreadPool pool(4);
  pool.run(static_cast<int64_t>(texts.size()),
           [&](int64_t i) { all[static_cast<size_t>(i)] = tokenizer.encode(texts[static_cast<size_t>(i)]); });
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(all[i], tokenizer.encode(texts[i]));
}

// A change that makes a valid file invalid. Tessera must refuse the changed file. The error must contain the texts
// `where` and `what`.
struct BadFile {
  const char* pointer;  // JSON pointer of the value to change
  const char* value;    // the new value as JSON; "" removes the key
  const char* where;
  const char* what;
};

void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.pointer << " = " << bad.value;
}

class BadTokenizer : public testing::TestWithParam<BadFile> {};

TEST_P(BadTokenizer, IsRefusedWithTheWrongKey) {
  const BadFile& bad = GetParam();
  Json json = Json::parse(sample_json());
  const Json::json_pointer pointer(bad.pointer);
  if (*bad.value) {
    json[pointer] = Json::parse(bad.value);
  } else {
    json[pointer.parent_pointer()].erase(pointer.back());
  }
  try {
    Tokenizer::from_json_text(json.dump(), "folder/tokenizer.json");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(bad.where));
    EXPECT_THAT(error.what(), HasSubstr(bad.what));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadTokenizer,
    testing::Values(
        BadFile{"/model", "", "folder/tokenizer.json: ", "\"model\" is missing"},
        BadFile{"/model/type", "\"WordPiece\"",
                "folder/tokenizer.json: model: ", "\"WordPiece\". Tessera reads BPE tokenizers"},
        BadFile{"/model/type", "\"Unigram\"", ": model: ", "\"Unigram\""},
        BadFile{"/model/type", "\"WordLevel\"", ": model: ", "\"WordLevel\""},
        BadFile{"/model/dropout", "0.1", ": model.dropout: ", "0.1"},
        BadFile{"/model/dropout", "[[]]", ": model.dropout: ", "expected a number, found array"},
        BadFile{"/model/end_of_word_suffix", "\"</w>\"", ": model.end_of_word_suffix: ", "\"</w>\""},
        BadFile{"/model/unk_token", "\"[UNK]\"", ": model.unk_token: ", "\"[UNK]\" is not in the vocabulary"},
        BadFile{"/model/vocab", "", ": model: ", "\"vocab\" is missing"},
        BadFile{"/model/vocab", "[[\"a\", -1.5]]", ": model.vocab: ", "expected an object"},
        BadFile{"/model/vocab/Ġt", "\"x\"", ": model.vocab[\"Ġt\"]: ", "expected an id, found string"},
        BadFile{"/model/vocab/Ġt", "-1", ": model.vocab[\"Ġt\"]: ", "-1 is not in [0, "},
        BadFile{"/model/vocab/Ġt", "4000000000", ": model.vocab[\"Ġt\"]: ", "4000000000 is not in [0, "},
        BadFile{"/model/vocab/Ġt", "0", ": model.vocab[", "the id 0 belongs to another token"},
        BadFile{"/model/merges", "", ": model: ", "\"merges\" is missing"},
        BadFile{"/model/merges/1", "\"one two three\"", ": model.merges[1]: ", "\"one two three\" is not two tokens"},
        BadFile{"/model/merges/1", "[\"a\"]", ": model.merges[1]: ", "expected \"a b\" or [\"a\", \"b\"]"},
        BadFile{"/model/merges/1", "\"x y\"", ": model.merges[1]: ", "needs the token \"xy\""},
        BadFile{"/normalizer", "{\"type\": \"Lowercase\"}", ": normalizer: ", "\"Lowercase\""},
        BadFile{"/normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"x\"}",
                ": normalizer.pattern: ", "the pattern is empty"},
        BadFile{"/pre_tokenizer", "{\"type\": \"Whitespace\"}", ": pre_tokenizer: ", "\"Whitespace\""},
        BadFile{"/pre_tokenizer", "{\"type\": \"Metaspace\"}", ": pre_tokenizer: ", "\"replacement\" is missing"},
        BadFile{"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}",
                ": pre_tokenizer.replacement: ", "expected one character, found \"ab\""},
        BadFile{"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}",
                ": pre_tokenizer.prepend_scheme: ", "\"last\""},
        BadFile{"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}",
                ": pre_tokenizer: ", "add_prefix_space is false, but prepend_scheme is not \"never\""},
        BadFile{"/pre_tokenizer",
                "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\", "
                "\"add_prefix_space\": false}",
                ": pre_tokenizer: ", "prepend_scheme is not \"never\""},
        BadFile{"/decoder", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"add_prefix_space\": false}",
                ": decoder: ", "prepend_scheme is not \"never\""},
        BadFile{
            "/pre_tokenizer",
            "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"String\": \"-\"}, "
            "\"behavior\": \"Removed\", \"invert\": false}, {\"type\": \"Metaspace\", \"replacement\": \"_\", "
            "\"prepend_scheme\": \"first\"}]}",
            ": pre_tokenizer.pretokenizers[1]: ", "\"first\" is not supported after a Split with the behavior Removed"},
        BadFile{"/post_processor", "{\"type\": \"BertProcessing\"}", ": post_processor: ", "\"BertProcessing\""},
        BadFile{"/post_processor", "{\"type\": \"RobertaProcessing\"}", ": post_processor: ", "\"RobertaProcessing\""},
        BadFile{"/post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}",
                ": post_processor.single: ", "exactly once"},
        BadFile{"/post_processor",
                "{\"type\": \"TemplateProcessing\", \"special_tokens\": {\"x\": {\"ids\": [9999]}}, \"single\": "
                "[{\"SpecialToken\": {\"id\": \"x\"}}, {\"Sequence\": {\"id\": \"A\"}}]}",
                ": post_processor: ", "the id 9999, which no token has"},
        BadFile{"/post_processor",
                "{\"type\": \"TemplateProcessing\", \"special_tokens\": {}, \"single\": [{\"SpecialToken\": {\"id\": "
                "\"x\"}}]}",
                ": post_processor.special_tokens: ", "\"x\" is missing"},
        BadFile{"/decoder", "{\"type\": \"WordPiece\"}", ": decoder: ", "\"WordPiece\""},
        BadFile{"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\"[a\"",
                ": pre_tokenizer.pretokenizers[0].pattern: ", "Oniguruma rejects"},
        BadFile{"/pre_tokenizer/pretokenizers/0/behavior", "\"Split\"", "[0].behavior: ", "\"Split\""},
        BadFile{"/decoder", "null", ": decoder: ", "the decoder is missing"},
        BadFile{"/added_tokens/1/special", "\"yes\"", ": added_tokens[1].special: ", "expected true or false"},
        BadFile{"/added_tokens/1/content", "", ": added_tokens[1]: ", "\"content\" is missing"},
        BadFile{"/version", "\"2.0\"", ": version: ", "\"2.0\""}));

TEST(Tokenizer, RefusesInvalidJsonAndMissingFiles) {
  const auto message = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string json = sample_json();
  const auto parsed = [&](const std::string& text) {
    return message([&] { Tokenizer::from_json_text(text, "t.json"); });
  };
  EXPECT_THAT(parsed(json.substr(0, json.size() / 2)), HasSubstr(": not valid JSON: "));
  EXPECT_THAT(parsed(""), HasSubstr(": not valid JSON: "));
  EXPECT_THAT(parsed("{\"model\": \"\xff\"}"), HasSubstr(": not valid JSON: "));
  EXPECT_THAT(parsed("[]"), HasSubstr("t.json: expected an object, found array"));
  EXPECT_THAT(message([] { Tokenizer::load("/no/such/tokenizer.json"); }),
              HasSubstr("/no/such/tokenizer.json: no such file. Give the tokenizer.json of a model folder"));
}

std::vector<std::filesystem::path> reference_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TESSERA_TEST_DIR) /
                                                               "unit/data/tokenizer_references")) {
    if (entry.path().string().ends_with(".tokenizer.json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The prompt and the answer of a sample are encoded separately. With each of these tokenizers, the ids of the prompt
// followed by the ids of the answer must equal the ids of the complete text.
TEST(Tokenizer, PartsOfASampleGiveTheIdsOfTheCompleteText) {
  static constexpr const char* kWords[] = {"word", "Ada", "él",   "渡轮",     "12",     "1999",
                                           "x.",   "(a)", "it's", "👍🏽", "\u0301b"};
  RandomStream random(3, 0);
  for (const std::string name : {"bloom", "gpt2", "llama2", "llama3", "mistral", "qwen2", "cased", "gemma"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(TESSERA_TEST_DIR) /
                                                "unit/data/tokenizer_references" / (name + ".tokenizer.json"));
    const auto before = tokenizer.encode_at(TextPlace::start, "");
    const auto words = [&] {
      std::string text;
      for (uint64_t n = 1 + random.next_below(5); n > 0; --n) text += std::string(" ") + kWords[random.next_below(11)];
      return text;
    };
    for (int i = 0; i < 50; ++i) {
      const std::string prompt = "Question:" + words() + " Answer:", answer = words();
      auto parts = tokenizer.encode_at(TextPlace::start, prompt);
      const auto rest = tokenizer.encode_at(TextPlace::inside, answer);
      parts.insert(parts.end(), rest.begin(), rest.end());
      auto complete = tokenizer.encode(prompt + answer);
      complete.insert(complete.begin(), before.begin(), before.end());
      EXPECT_EQ(parts, complete) << prompt << answer;
    }
  }
}

TEST(Tokenizer, TheTemplateOfAFileFramesATextButNotAPromptsEnd) {
  Json json = Json::parse(sample_json());
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel", "trim_offsets": true},
    {"type": "TemplateProcessing", "special_tokens": {"b": {"ids": [1, 3]}, "e": {"ids": [2]}}, "single": [
      {"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "e"}}]},
    {"type": "TemplateProcessing", "special_tokens": {"b": {"ids": [0]}}, "single": [
      {"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}]}]})");
  const Tokenizer tokenizer = Tokenizer::from_json_text(json.dump(), "sample");
  const auto plain = tokenizer.encode("t");
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_THAT(tokenizer.encode_with_special("t"), ElementsAre(0, 1, 3, plain[0], 2));
  EXPECT_THAT(tokenizer.encode_at(TextPlace::start, "t"), ElementsAre(0, 1, 3, plain[0]));
  EXPECT_THAT(tokenizer.encode_at(TextPlace::inside, "t"), ElementsAre(plain[0]));
}

// Makes three damaged copies of each reference file. In each copy, one random value is replaced. A damaged file must
// cause an InputError or give a tokenizer that works.
TEST(Tokenizer, DamagedFilesAreRefusedOrWork) {
  RandomStream random(4, 0);
  int num_refused = 0, num_working = 0;
  for (const auto& path : reference_files()) {
    std::ifstream file(path);
    const Json valid = Json::parse(file);
    Json flat = valid;
    flat["model"].erase("vocab");  // otherwise nearly every replaced value would be in vocab or merges
    flat["model"].erase("merges");
    flat = flat.flatten();
    for (int i = 0; i < 3; ++i) {
      Json damaged = valid;
      auto entry = flat.begin();
      std::advance(entry, static_cast<std::ptrdiff_t>(random.next_below(flat.size())));
      static const Json kValues[] = {nullptr, true, "", "x", 7, -1, Json::array(), Json::object(), "\u2581"};
      damaged[Json::json_pointer(entry.key())] = kValues[random.next_below(std::size(kValues))];
      try {
        const Tokenizer tokenizer = Tokenizer::from_json_text(damaged.dump(), "damaged");
        tokenizer.decode(tokenizer.encode_with_special(" a word,\u2581 12 \u00e9\n<s>"), true);
        ++num_working;
      } catch (const InputError&) {
        ++num_refused;
      }
    }
  }
  EXPECT_GT(num_refused, 20);
  EXPECT_GT(num_working, 20);
}

}  // namespace
}  // namespace tessera
