#include "tessera/model/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/model/model.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig small_llama(bool tied = false) {
  return parse_model_config(tied
                                ? R"({"model_type": "llama", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 12, "tie_word_embeddings": true})"
                                : R"({"model_type": "llama", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 12, "tie_word_embeddings": false})",
                            "config.json");
}

std::vector<std::string> adapted_layers(const AdapterOptions& options) {
  ModelConfig config = small_llama();
  config.adapter = options;
  const auto device = make_counting_device();
  return Model(config, *device).adapted_layers();
}

// As in PEFT: a name matches the end of a path after a dot, and a regular expression the complete path.
TEST(Adapter, ChoosesLayersByNamesExpressionsAndBlocks) {
  EXPECT_EQ(adapted_layers({}).size(), 3u * 7);
  EXPECT_THAT(adapted_layers({.targets = {"q_proj"}, .layers = {0, 2}}),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.2.self_attn.q_proj"));
  EXPECT_THAT(adapted_layers({.targets = {R"(model\.layers\.[12]\.mlp\.(gate|up)_proj)"}, .excluded = {"up_proj"}}),
              ElementsAre("model.layers.1.mlp.gate_proj", "model.layers.2.mlp.gate_proj"));
  EXPECT_THAT(adapted_layers({.targets = {"lm_head"}}), ElementsAre("lm_head"));
  EXPECT_FALSE(matches_path("proj", "model.layers.0.self_attn.q_proj", "lora_target_modules"));
  // Takes exponential time in a matcher that tries one way after the other.
  EXPECT_FALSE(matches_path("(([a-z0-9_.]+)+)+x", "model.layers.0.self_attn.q_proj.and.many.more.words.of.a.long.path",
                            "lora_target_modules"));
}

TEST(Adapter, HasTheScaleOfPeft) {
  AdapterOptions options{.rank = 4, .alpha = 8, .ranks = {{"down_proj", 16}}, .alphas = {{"layers.1.*", 2}}};
  EXPECT_EQ(adapter_of_layer(options, "model.layers.0.mlp.up_proj", false)->scale, 2);
  EXPECT_EQ(adapter_of_layer(options, "model.layers.0.mlp.down_proj", false)->rank, 16);
  EXPECT_EQ(adapter_of_layer(options, "model.layers.1.mlp.down_proj", false)->scale, 0.125);
  options.rank_stabilized = true;
  EXPECT_EQ(adapter_of_layer(options, "model.layers.1.mlp.down_proj", false)->scale, 0.5);
  EXPECT_FALSE(adapter_of_layer(options, "lm_head", true).has_value());
}

TEST(Adapter, TrainsOnlyFactorsAndWholeModules) {
  ModelConfig config = small_llama();
  config.adapter = AdapterOptions{.rank = 2, .targets = {"v_proj"}, .whole = {"lm_head", "embed_tokens"}};
  const auto device = make_counting_device();
  const Model model(config, *device);
  std::vector<std::string> trained;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (spec.trainable()) trained.push_back(model.adapter_file_name(spec.name));
    }
  }
  const std::string layers = "base_model.model.model.layers.";
  EXPECT_THAT(trained,
              ElementsAre("base_model.model.model.embed_tokens.weight", layers + "0.self_attn.v_proj.lora_A.weight",
                          layers + "0.self_attn.v_proj.lora_B.weight", layers + "1.self_attn.v_proj.lora_A.weight",
                          layers + "1.self_attn.v_proj.lora_B.weight", layers + "2.self_attn.v_proj.lora_A.weight",
                          layers + "2.self_attn.v_proj.lora_B.weight", "base_model.model.lm_head.weight"));
}

TEST(Adapter, IsInterchangeableWithOneThatComputesTheSame) {
  const AdapterOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj"}, .whole = {"a", "b"}};
  AdapterOptions other = options;
  other.dropout = 0.5;
  other.targets = {"v_proj", "q_proj"};
  other.whole = {"b", "a"};
  EXPECT_TRUE(are_interchangeable(options, other));
  for (const auto change :
       {+[](AdapterOptions& o) { o.rank = 8; }, +[](AdapterOptions& o) { o.alpha = 4; },
        +[](AdapterOptions& o) { o.targets = {"q_proj"}; }, +[](AdapterOptions& o) { o.rank_stabilized = true; },
        +[](AdapterOptions& o) { o.whole = {}; }}) {
    other = options;
    change(other);
    EXPECT_FALSE(are_interchangeable(options, other));
  }
}

TEST(Adapter, RefusesNamesThatTheModelDoesNotHave) {
  const std::pair<AdapterOptions, const char*> cases[] = {
      {{.targets = {"query_key_value"}}, "\"query_key_value\" names no linear layer"},
      {{.targets = {"q_proj("}}, "no regular expression"},
      {{.layers = {3}}, "3 is no block of the model, which has blocks 0 to 2"},
      {{.ranks = {{"w1", 4}}}, "\"w1\" names no linear layer"},
      {{.whole = {"wte"}}, "\"wte\" names no module"},
      {{.targets = {"q_proj"}, .excluded = {"q_proj"}}, "leaves no layer"},
      {{.excluded = {"q_proj"}, .whole = {"q_proj"}}, "computed together"},
      {{.whole = {"down_proj"}}, "would be trained whole, and also have an adapter"},
  };
  for (const auto& [options, message] : cases) {
    try {
      adapted_layers(options);
      ADD_FAILURE() << message;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
  ModelConfig tied = small_llama(true);
  const auto device = make_counting_device();
  for (const char* whole : {"embed_tokens", "lm_head"}) {
    tied.adapter = AdapterOptions{.whole = {whole}};
    EXPECT_THROW(Model(tied, *device), UsageError) << whole;
  }
}

// Options that are written and read again choose the same layers with the same scales.
TEST(AdapterConfig, IsReadAsItWasWritten) {
  RandomStream random(7, 0);
  const std::vector<std::string> expressions = {"q_proj", "mlp.up_proj", "v_proj|k_proj", R"(layers\.[01]\..*_proj)",
                                                "down_proj"};
  const auto some = [&] {
    std::vector<std::string> chosen;
    for (const std::string& one : expressions) {
      if (random.next_below(2)) chosen.push_back(one);
    }
    return chosen;
  };
  for (int turn = 0; turn < 200; ++turn) {
    AdapterOptions options{.rank = 1 + static_cast<int64_t>(random.next_below(9)),
                           .alpha = static_cast<double>(random.next_below(64)) / 4,
                           .rank_stabilized = random.next_below(2) > 0,
                           .targets = some()};
    if (random.next_below(3) == 0) options.layers = {0, 2};
    if (random.next_below(2)) options.ranks = {{"down_proj", 5}, {"q_proj", 2}};
    if (random.next_below(2)) options.alphas = {{".*_proj", 3}};
    const auto paths = [](const AdapterOptions& of) {
      std::vector<std::string> result;
      for (const char* layer :
           {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj", "mlp.down_proj"}) {
        for (int block = 0; block < 3; ++block) {
          const std::string path = "model.layers." + std::to_string(block) + "." + layer;
          const auto adapter = adapter_of_layer(of, path, false);
          if (adapter)
            result.push_back(path + " " + std::to_string(adapter->rank) + " " + std::to_string(adapter->scale));
        }
      }
      return result;
    };
    AdapterOptions again = options;
    for (int writes = 0; writes < 2; ++writes) {
      again = parse_adapter_config(adapter_config_json(again, {}, "base"), "adapter_config.json");
      EXPECT_EQ(paths(again), paths(options)) << turn;
      EXPECT_EQ(adapter_to_json(again), adapter_to_json(options)) << turn;
    }
  }
}

TEST(AdapterConfig, RefusesWhatChangesTheMathematics) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"use_dora": true})", "\"use_dora\" is true: DoRA"},
      {R"({"peft_type": "IA3"})", "\"peft_type\" is \"IA3\""},
      {R"({"layer_replication": [[0, 2]]})", "layer_replication"},
      {R"({"lora_bias": true})", "lora_bias"},
      {R"({"target_parameters": ["w"]})", "target_parameters"},
      {R"({"trainable_token_indices": [1]})", "trainable_token_indices"},
      {R"({"alora_invocation_tokens": [1]})", "alora_invocation_tokens"},
      {R"({"use_qalora": true})", "use_qalora"},
      {R"({"init_lora_weights": "pissa"})", "\"init_lora_weights\" is \"pissa\""},
      {R"({"r": 0})", "\"r\" is 0"},
      {R"({"r": 2.5})", "\"r\" is 2.5"},
      {R"({"lora_alpha": "x"})", "\"lora_alpha\" is \"x\""},
      {R"({"target_modules": {"a": 1}})", "target_modules"},
      {R"({"rank_pattern": {"q_proj": 0}})", "rank_pattern"},
      {R"({"rank_pattern": {"q_proj": 3.7}})", "not a whole number"},
      {R"({"use_bdlora": true})", "BD-LoRA"},
      {R"({"velora_config": {"a": 1}})", "VeLoRA"},
      {R"({"bias": "some"})", "\"bias\" is \"some\""},
      {R"({"layers_to_transform": ["a"]})", "layers_to_transform"},
      {"[]", "is not a JSON object"},
      {"{", "adapter_config.json"},
  };
  for (const auto& [text, message] : cases) {
    try {
      parse_adapter_config(text, "adapter_config.json");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << text;
    }
  }
  EXPECT_EQ(parse_adapter_config(R"({"peft_type": "LORA", "target_modules": ["q_proj"], "use_dora": false, "new": 1,
                                    "layer_replication": null, "init_lora_weights": "gaussian"})",
                                 "")
                .targets,
            std::vector<std::string>{"q_proj"});
}

}  // namespace
}  // namespace tessera
