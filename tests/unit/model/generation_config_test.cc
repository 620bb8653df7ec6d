#include "tessera/model/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerationConfig parsed(const std::string& text) {
  return parse_generation_config(text, "generation_config.json", 200000);
}

TEST(GenerationConfig, OfPublishedModels) {
  const GenerationConfig llama = parsed(R"({"bos_token_id": 128000, "do_sample": true,
      "eos_token_id": [128001, 128008, 128009], "temperature": 0.6, "top_p": 0.9, "transformers_version": "4.45.0"})");
  EXPECT_THAT(llama.end_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_TRUE(llama.do_sample);
  EXPECT_EQ(llama.temperature, 0.6);
  EXPECT_EQ(llama.top_p, 0.9);
  EXPECT_EQ(llama.top_k, std::nullopt);
  EXPECT_THAT(llama.unused, IsEmpty());
  const GenerationConfig qwen = parsed(R"({"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
      "eos_token_id": [151645, 151643], "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20})");
  EXPECT_THAT(qwen.end_ids, ElementsAre(151645, 151643));
  EXPECT_EQ(qwen.top_k, 20);
  EXPECT_THAT(qwen.unused, ElementsAre("repetition_penalty 1.05"));
  const GenerationConfig bloom = parsed(R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": 2,
      "pad_token_id": 3, "do_sample": false, "num_beams": 1, "repetition_penalty": 1.0, "suppress_tokens": [],
      "temperature": null, "top_k": 50, "min_p": null, "forced_eos_token_id": null})");
  EXPECT_THAT(bloom.end_ids, ElementsAre(2));
  EXPECT_FALSE(bloom.do_sample);
  EXPECT_EQ(bloom.temperature, std::nullopt);
  EXPECT_THAT(bloom.unused, IsEmpty());
  EXPECT_THAT(parsed("{}").end_ids, IsEmpty());
  EXPECT_THAT(parsed(R"({"num_beams": 4, "bad_words_ids": [[5]], "forced_eos_token_id": 0})").unused,
              ElementsAre("num_beams 4", "bad_words_ids", "forced_eos_token_id 0"));
}

// Only a command that uses a value refuses it.
TEST(GenerationConfig, KeepsFaultsOfValues) {
  for (const auto& [text, message] : {
           std::pair{R"({"eos_token_id": -1})", "\"eos_token_id\" is -1, not a whole number from 0 to 199999"},
           std::pair{R"({"eos_token_id": [1, 200000]})", "\"eos_token_id\" contains 200000"},
           std::pair{R"({"eos_token_id": [1, "a"]})", "\"eos_token_id\" contains \"a\""},
           std::pair{R"({"eos_token_id": {}})", "\"eos_token_id\" is an object"},
           std::pair{R"({"bos_token_id": "a"})", "\"bos_token_id\" is \"a\", not a whole number"},
           std::pair{R"({"pad_token_id": 200000})", "\"pad_token_id\" is 200000, not a whole number"},
       }) {
    const GenerationConfig config = parsed(text);
    EXPECT_THAT(config.notes, ElementsAre(HasSubstr(std::string("generation_config.json: ") + message))) << text;
    EXPECT_THAT(config.faults, IsEmpty()) << text;
  }
  for (const auto& [key, text, message] : {
           std::tuple{"do_sample", R"({"do_sample": 1})", "\"do_sample\" is 1, not true or false"},
           std::tuple{"temperature", R"({"temperature": -1})", "\"temperature\" is -1, not a number from 0"},
           std::tuple{"temperature", R"({"temperature": "0.5"})", "\"temperature\" is \"0.5\", not a number from 0"},
           std::tuple{"top_k", R"({"top_k": -1})", "\"top_k\" is -1, not a whole number from 0"},
           std::tuple{"top_k", R"({"top_k": 1.5})", "\"top_k\" is 1.5, not a whole number from 0"},
           std::tuple{"top_p", R"({"top_p": 1.5})", "\"top_p\" is 1.5, not a number from 0 to 1"},
       }) {
    const GenerationConfig config = parsed(text);
    EXPECT_THAT(config.faults, ElementsAre(testing::Pair(key, testing::StartsWith(message)))) << text;
    EXPECT_EQ(config.do_sample || config.temperature || config.top_k || config.top_p, false) << text;
  }
  EXPECT_THAT(parsed(R"({"eos_token_id": []})").end_ids, IsEmpty());
  for (const auto& [text, message] :
       {std::pair{"[]", "generation_config.json: is not a JSON object"}, std::pair{"{", "generation_config.json:1:"}}) {
    try {
      parsed(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << text;
    }
  }
}

TEST(GenerationConfig, SavedFileHasTheUsedEndToken) {
  const auto saved = [](const char* text) { return parsed(generation_config_to_save(text, "g.json", 7)).end_ids; };
  const char* kept = R"({"top_p": 0.90,  "eos_token_id": [5, 7]})";
  EXPECT_EQ(generation_config_to_save(kept, "g.json", 7), kept);
  EXPECT_THAT(saved("{}"), ElementsAre(7));
  EXPECT_THAT(saved(R"({"eos_token_id": 5})"), ElementsAre(7, 5));
  EXPECT_THAT(saved(R"({"eos_token_id": [5, 6]})"), ElementsAre(7, 5, 6));
}

}  // namespace
}  // namespace tessera
