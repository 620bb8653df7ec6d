#include "tessera/model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tessera/base/error.h"
#include "tessera/model/gguf.h"
#include "tessera/model/model.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig small_config(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 19;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.ff_dim = 256;
  config.max_positions = 64;
  config.rope.theta = 100;
  return config;
}

TEST(Architectures, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Architecture* row : architectures()) {
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
    EXPECT_EQ(find_architecture(row->name), row);
  }
  EXPECT_EQ(find_architecture("gpt2"), nullptr);
  EXPECT_EQ(find_architecture(""), nullptr);
  EXPECT_EQ(supported_types(), R"("bloom", "gpt", "llama", "mistral", "qwen2" and "qwen3")");
  EXPECT_THAT(model_families(), ElementsAre("Llama", "Mistral", "Qwen", "BLOOM", "GPT"));
  EXPECT_THAT(names_with_free_sizes(), ElementsAre("gpt"));
  EXPECT_TRUE(has_free_sizes("gpt") && !has_free_sizes("bloom") && !has_free_sizes("bloom-560m"));
  EXPECT_TRUE(is_shape_name("gpt") && is_shape_name("qwen3-8b") && !is_shape_name("qwen3"));
  EXPECT_THAT(block_classes(), ElementsAre("BloomBlock", "LlamaDecoderLayer", "MistralDecoderLayer",
                                           "Qwen2DecoderLayer", "Qwen3DecoderLayer", "TransformerEncoderLayer"));
}

// A row without a function that every architecture needs would only fail when a model of its type is used.
TEST(Architectures, WriteConfigurationsThatTheyRead) {
  const auto device = make_counting_device();
  for (const Architecture* row : architectures()) {
    SCOPED_TRACE(row->name);
    const ModelConfig config = small_config(row->name);
    ASSERT_EQ(fault_of(config), "");
    const std::string text = model_config_json(config, DType::f32);
    const ModelConfig again = parse_model_config(text, "config.json");
    EXPECT_THAT(again.notes, testing::IsEmpty());
    EXPECT_EQ(model_config_json(again, DType::f32), text);
    Json fingerprint = model_fingerprint(config), fingerprint_again = model_fingerprint(again);
    if (row->add_to_fingerprint) {  // a file without biases reads as one with the biases of its type
      fingerprint.erase("biases");
      fingerprint_again.erase("biases");
    }
    EXPECT_EQ(fingerprint_again, fingerprint);
    const Model model(again, *device);
    const auto counted = static_cast<double>(model.unit(1).table().num_parameters());
    EXPECT_LE(std::abs(row->parameters_of_block(again) - counted), 0.03 * counted);  // without biases and norms
    EXPECT_EQ(again.tied_head, config.tied_head);
    Json missing = Json::parse(text);
    missing.erase("tie_word_embeddings");
    EXPECT_EQ(parse_model_config(missing.dump(), "config.json").tied_head, row->tied_by_default);
  }
}

// Checkpoints record these texts. A changed text would refuse to continue earlier runs.
TEST(Architectures, FingerprintsStayTheSame) {
  ModelConfig bloom = small_config("bloom");
  EXPECT_EQ(model_fingerprint(bloom).dump(),
            R"({"architecture":"bloom","vocab_size":19,"hidden_size":64,"num_layers":2,"num_heads":4,"ff_dim":256,)"
            R"("layer_norm_epsilon":1e-05,"residual_from_norm":false,"head":""})");
  bloom.tied_head = false;
  EXPECT_EQ(model_fingerprint(bloom)["head"], "untied");
  ModelConfig qwen = small_config("qwen2");
  qwen.num_kv_heads = 2;
  qwen.head_channels = 4;
  qwen.qkv_bias = true;
  qwen.sliding_window = 7;
  qwen.sliding_layers = {false, true};
  EXPECT_EQ(model_fingerprint(qwen).dump(),
            R"({"architecture":"qwen2","vocab_size":19,"hidden_size":64,"num_layers":2,"num_heads":4,"ff_dim":256,)"
            R"("layer_norm_epsilon":1e-05,"residual_from_norm":false,"head":"","num_kv_heads":2,"head_dim":4,)"
            R"("activation":"silu","biases":[true,false,false],"rotary":[1.0,0.10000000149011612],)"
            R"("rotary_scale":1.0,"windows":[0,7]})");
}

TEST(Architectures, KnownModelsHaveTheTypeOfTheirRow) {
  for (const Architecture* row : architectures()) {
    if (!row->known_models) continue;
    for (const KnownModel& known : row->known_models()) {
      ModelConfig config;
      ASSERT_TRUE(find_known_model(known.name, config)) << known.name;
      EXPECT_EQ(config.architecture, row->name) << known.name;
      EXPECT_EQ(fault_of(config), "") << known.name;
    }
  }
}

TEST(Architectures, LayerWindowsAreRefusedWithTheTypesThatHaveThem) {
  const std::string text =
      R"({"model_type": "mistral", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 8,
          "layer_types": ["full_attention", "sliding_attention"]})";
  try {
    parse_model_config(text, "config.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("support layers of both kinds in models of type qwen2 and qwen3"));
  }
}

// A tensor without a name in GGUF files would only fail when a model is exported.
TEST(Architectures, HaveNamesInGguf) {
  const auto device = make_counting_device();
  for (const Architecture* row : architectures()) {
    if (!row->gguf) continue;
    SCOPED_TRACE(row->name);
    ModelConfig config = parse_model_config(model_config_json(small_config(row->name), DType::f32), "config.json");
    config.tied_head = false;
    const GgufForm& form = gguf_form_of(config);
    std::set<std::string> names;
    const Model model(config, *device);
    model.for_each_tensor([&](const ParameterSpec& spec) {
      const std::string name = gguf_name_of(form, spec.name);
      EXPECT_TRUE(names.insert(name).second) << name;
      const GgufRows rows = form.rows_of(config, gguf_layer_of(form, spec.name));
      std::set<int64_t> sources;
      for (int64_t r = 0; r < spec.shape[0]; ++r) sources.insert(rows.source_of(r));
      EXPECT_EQ(std::ssize(sources), spec.shape[0]) << name;
      EXPECT_EQ(*sources.rbegin(), spec.shape[0] - 1) << name;
    });
    EXPECT_TRUE(names.contains("token_embd.weight") && names.contains("output.weight")) << row->name;
    EXPECT_TRUE(names.contains("blk.1.ffn_down.weight")) << row->name;
  }
  EXPECT_THROW(gguf_form_of(small_config("gpt")), UsageError);
}

}  // namespace
}  // namespace tessera
