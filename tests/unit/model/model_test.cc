#include "tessera/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/model/bloom.h"

namespace tessera {
namespace {

using testing::HasSubstr;

TEST(Bloom, KnownShapesHaveTheirPublishedParameters) {
  const std::pair<const char*, int64_t> models[] = {{"bloom-560m", 559214592}, {"bloom-1b1", 1065314304},
                                                    {"bloom-1b7", 1722408960}, {"bloom-3b", 3002557440},
                                                    {"bloom-7b1", 7069016064}, {"bloom-176b", 176247271424}};
  for (const auto& [name, num_parameters] : models) {
    const auto device = make_counting_device();
    ModelConfig config;
    ASSERT_TRUE(find_known_model(name, config));
    EXPECT_EQ(Model(config, *device).num_parameters(), num_parameters) << name;
  }
}

TEST(Bloom, AlibiSlopes) {
  EXPECT_THAT(alibi_slopes(4), testing::ElementsAre(0.25f, 0.0625f, 0x1p-6f, 0x1p-8f));
  // 6 heads: the slopes for 4 heads, then the first and third slope for 8 heads.
  EXPECT_THAT(alibi_slopes(6), testing::ElementsAre(0.25f, 0.0625f, 0x1p-6f, 0x1p-8f, 0.5f, 0.125f));
  EXPECT_EQ(alibi_slopes(112).size(), 112u);
}

void check_tables(const Model& model, size_t num_tensors) {
  std::set<std::string> names;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    const ParameterTable& table = model.unit(u).table();
    std::vector<ParameterSpec> specs = table.specs();
    std::ranges::sort(specs, {}, &ParameterSpec::offset);
    int64_t end = 0;
    for (const ParameterSpec& spec : specs) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_EQ(spec.offset % ParameterTable::kAlignment, 0);
      EXPECT_GE(spec.offset, end);
      end = spec.offset + spec.shape.num_elems();
      EXPECT_EQ(spec.decays, spec.offset < table.num_decayed()) << spec.name;
      EXPECT_EQ(spec.decays, spec.shape.rank() == 2) << spec.name;  // biases and norms do not decay
    }
    EXPECT_LE(end, table.num_elems(Section::trainable));
  }
  EXPECT_EQ(names.size(), num_tensors);
}

TEST(ParameterTable, DecayedTensorsComeFirstAndAreAligned) {
  const auto device = make_counting_device();
  ModelConfig config = parse_model_config(
      R"({"model_type": "bloom", "vocab_size": 11, "n_embed": 6, "n_layer": 2, "n_head": 3})", "config.json");
  check_tables(Model(config, *device), 5u + 2 * 12);
  config.tied_head = false;
  check_tables(Model(config, *device), 6u + 2 * 12);
}

// Trainable and frozen tensors are in sections of their own. The order of the specs does not change, so handles, which
// are indexes of specs, stay valid.
TEST(ParameterTable, FrozenTensorsHaveTheirOwnSection) {
  const auto device = make_counting_device();
  const ModelConfig config = parse_model_config(
      R"({"model_type": "bloom", "vocab_size": 11, "n_embed": 6, "n_layer": 3, "n_head": 3})", "config.json");
  const Model plain(config, *device);
  const Model model(config, *device, {"transformer.h.0.*", "h.1.*.bias", "word_embeddings.weight"});
  EXPECT_EQ(model.num_parameters(), plain.num_parameters());
  int64_t trainable = 0;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    const ParameterTable& table = model.unit(u).table();
    EXPECT_EQ(table.num_elems(Section::trainable) + table.num_elems(Section::frozen),
              plain.unit(u).table().num_elems(Section::trainable));
    for (size_t i = 0; i < table.specs().size(); ++i) {
      const ParameterSpec& spec = table.specs()[i];
      EXPECT_EQ(spec.name, plain.unit(u).table().specs()[i].name);
      EXPECT_LE(spec.offset + spec.shape.num_elems(), table.num_elems(spec.section)) << spec.name;
      if (spec.trainable()) {
        EXPECT_EQ(spec.decays, spec.offset < table.num_decayed()) << spec.name;
      }
      EXPECT_EQ(spec.trainable(), !spec.name.starts_with("h.0.") && spec.name != "word_embeddings.weight" &&
                                      !(spec.name.starts_with("h.1.") && spec.name.ends_with(".bias")))
          << spec.name;
      trainable += spec.trainable() ? spec.shape.num_elems() : 0;
    }
  }
  EXPECT_EQ(model.num_trainable_parameters(), trainable);
  EXPECT_EQ(model.unit(1).table().num_elems(Section::trainable), 0);
  EXPECT_EQ(model.first_trained(), 0);  // the norm after the embedding trains
  EXPECT_EQ(Model(config, *device, {"h.0.*", "word_embeddings*"}).first_trained(), 2);
  EXPECT_EQ(Model(config, *device, {"h.*", "word_embeddings*"}).first_trained(), 4);
}

// An untied head is the last unit. This unit holds the final norm and the head's weight. In files, the head's weight is
// named lm_head.weight, without the prefix "transformer." of the other names.
TEST(Model, AHeadThatIsNotTiedIsAUnit) {
  const auto device = make_counting_device();
  const ModelConfig tied = parse_model_config(
      R"({"model_type": "bloom", "vocab_size": 11, "n_embed": 6, "n_layer": 2, "n_head": 3})", "config.json");
  const ModelConfig config = parse_model_config(
      R"({"model_type": "bloom", "vocab_size": 11, "n_embed": 6, "n_layer": 2, "n_head": 3,
          "tie_word_embeddings": false})",
      "config.json");
  const Model with(tied, *device), without(config, *device);
  EXPECT_EQ(with.head_unit(), 0);
  EXPECT_EQ(with.num_units(), 3);
  EXPECT_THAT(with.tolerated_names(), testing::ElementsAre("lm_head.weight"));
  EXPECT_EQ(without.head_unit(), 3);
  EXPECT_EQ(without.num_units(), 4);
  EXPECT_THAT(without.tolerated_names(), testing::IsEmpty());
  EXPECT_EQ(without.num_parameters(), with.num_parameters() + 11 * 6);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : without.unit(3).table().specs()) names.push_back(without.file_name(spec.name));
  EXPECT_THAT(names, testing::ElementsAre("lm_head.weight", "transformer.ln_f.weight", "transformer.ln_f.bias"));
  EXPECT_FALSE(parse_model_config(model_config_json(config, DType::f32), "again").tied_head);
}

TEST(ModelConfig, AcceptsBothSpellings) {
  const ModelConfig a = parse_model_config(
      R"({"model_type":"bloom","vocab_size":9,"hidden_size":8,"num_hidden_layers":3,"num_attention_heads":2,
          "apply_residual_connection_post_layernorm":true,"hidden_dropout":0.1})",
      "a");
  EXPECT_EQ(a.num_layers, 3);
  EXPECT_EQ(a.num_heads, 2);
  EXPECT_EQ(a.ff_dim, 32);
  EXPECT_TRUE(a.residual_from_norm);
  EXPECT_EQ(a.hidden_dropout, 0.1);
  EXPECT_EQ(a.attention_dropout, 0);
  const ModelConfig again = parse_model_config(model_config_json(a, DType::f32), "again");
  EXPECT_EQ(again.num_layers, 3);
  EXPECT_TRUE(again.residual_from_norm);
  EXPECT_THAT(model_config_json(a, DType::bf16), HasSubstr("bfloat16"));
}

void expect_refused(const char* text, const char* message) {
  try {
    parse_model_config(text, "folder/config.json");
    FAIL() << text;
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("folder/config.json"));
    EXPECT_THAT(e.what(), HasSubstr(message));
  }
}

TEST(ModelConfig, ReportsErrors) {
  expect_refused("", "not valid JSON");
  expect_refused("[1]", "not a JSON object");
  expect_refused("{}", "\"model_type\" is missing");
  expect_refused(R"({"model_type": ["bloom"]})", "\"model_type\" is an array");
  expect_refused(R"({"model_type": "bloom", "vocab_size": {}})", "\"vocab_size\" is an object, not a whole number");
  expect_refused(R"({"model_type": "gemma2"})", "\"model_type\" is \"gemma2\"");
  expect_refused(R"({"model_type": "mixtral"})", "Tessera supports \"bloom\", \"gpt\", \"llama\", \"mistral\"");
  expect_refused(R"({"model_type": "bloom", "hidden_size": 8, "n_layer": 1, "n_head": 1})",
                 "\"vocab_size\" is missing");
  expect_refused(R"({"model_type": "bloom", "vocab_size": -4, "hidden_size": 8, "n_layer": 1, "n_head": 1})",
                 "\"vocab_size\" is -4");
  expect_refused(R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": "8", "n_layer": 1, "n_head": 1})",
                 "\"hidden_size\" is \"8\"");
  expect_refused(R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 8, "n_layer": 1, "n_head": 3})",
                 "hidden_size 8 is not a multiple of the 3 heads");
  expect_refused(R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 16640, "n_layer": 1, "n_head": 65})",
                 "hidden_size is 16640, but norms support at most 16384 channels");
  expect_refused(R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 4100, "n_layer": 1, "n_head": 41})",
                 "hidden_size is 4100, but above 4096 it must be a multiple of 8");
  expect_refused(
      R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 8, "n_embed": 16, "n_layer": 1, "n_head": 2})",
      "\"hidden_size\" is 8, but \"n_embed\" is 16");
  expect_refused(
      R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 8, "n_layer": 1, "n_head": 2, "hidden_dropout": 1.5})",
      "\"hidden_dropout\" is 1.5");
  const std::string many_heads =
      R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 5000, "n_layer": 1, "n_head": 5000)";
  expect_refused((many_heads + R"(, "attention_dropout": 0.1})").c_str(),
                 "attention_dropout is 0.1 with 5000 heads, but dropout supports at most 4096 heads");
  EXPECT_EQ(parse_model_config(many_heads + "}", "config.json").num_heads, 5000);
}

ModelConfig with_tokens(const std::string& keys) {
  return parse_model_config(
      R"({"model_type": "bloom", "vocab_size": 9, "hidden_size": 8, "n_layer": 1, "n_head": 2)" + keys + "}", "c.json");
}

// Only end tokens are used. Wrong ids of other tokens, and wrong end tokens beside others, give notes.
TEST(ModelConfig, WrongTokenIdsGiveNotes) {
  for (const char* key : {"pad_token_id", "bos_token_id", "unk_token_id", "eos_token_id"}) {
    for (const char* value : {"-1", "9", "1e30", "1.5", "\"a\"", "{}", "true"}) {
      const ModelConfig config = with_tokens(", \"" + std::string(key) + "\": " + value);
      EXPECT_THAT(config.notes, testing::ElementsAre(HasSubstr(std::string("c.json: \"") + key + "\" is "))) << value;
      EXPECT_EQ(config.end_fault.empty(), key != std::string_view("eos_token_id"));
      EXPECT_EQ(config.bos_token_id + config.pad_token_id + config.unk_token_id + config.eos_token_id, -4);
    }
  }
  const ModelConfig several = with_tokens(R"(, "eos_token_id": [9, 3, -1, 4])");
  EXPECT_EQ(several.eos_token_id, 3);
  EXPECT_THAT(several.more_end_ids, testing::ElementsAre(4));
  EXPECT_EQ(several.notes.size(), 2u);
  EXPECT_EQ(several.end_fault, "");
}

TEST(ModelConfig, SavedEndTokensIncludeTheUsedOne) {
  const auto saved = [](const std::string& keys, int32_t used) {
    ModelConfig config = with_tokens(keys);
    config.eos_token_id = used;
    return nlohmann::json::parse(model_config_json(config, DType::f32)).at("eos_token_id").dump();
  };
  EXPECT_EQ(saved("", 3), "3");
  EXPECT_EQ(saved(R"(, "eos_token_id": null)", 3), "3");
  EXPECT_EQ(saved(R"(, "eos_token_id": -1)", 3), "3");
  EXPECT_EQ(saved(R"(, "eos_token_id": 4)", 4), "4");
  EXPECT_EQ(saved(R"(, "eos_token_id": 4)", 3), "[3,4]");
  EXPECT_EQ(saved(R"(, "eos_token_id": [4, 11, 5])", 3), "[3,4,11,5]");
  EXPECT_EQ(saved(R"(, "eos_token_id": [4, 11, 3])", 3), "[4,11,3]");
}

}  // namespace
}  // namespace tessera
