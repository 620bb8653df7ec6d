#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/random.h"
#include "tessera/model/model.h"

namespace tessera {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Returns a small valid configuration with `changes`. If a value of `changes` has json's type `discarded`, its key is
// removed from the configuration.
std::string config_text(const std::string& type, const json& changes = json::object()) {
  json config{{"model_type", type},     {"vocab_size", 11},         {"hidden_size", 12},
              {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
              {"head_dim", 6},          {"intermediate_size", 10},  {"max_position_embeddings", 64}};
  for (const auto& [key, value] : changes.items()) {
    if (value.is_discarded())
      config.erase(key);
    else
      config[key] = value;
  }
  return config.dump();
}
ModelConfig parsed(const std::string& type, const json& changes = json::object()) {
  return parse_model_config(config_text(type, changes), "config.json");
}
void expect_refused(const std::string& type, const json& changes, const char* message) {
  try {
    parse_model_config(config_text(type, changes), "folder/config.json");
    FAIL() << changes;
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("folder/config.json"));
    EXPECT_THAT(e.what(), HasSubstr(message));
  }
}

TEST(Llama, KnownShapesHaveTheirPublishedParameters) {
  const std::pair<const char*, int64_t> models[] = {
      {"llama-3.2-1b", 1235814400},   {"llama-3.2-3b", 3212749824}, {"llama-3.1-8b", 8030261248},
      {"llama-3.1-70b", 70553706496}, {"qwen2.5-0.5b", 494032768},  {"qwen2.5-1.5b", 1543714304},
      {"qwen2.5-3b", 3085938688},     {"qwen2.5-7b", 7615616512},   {"qwen2.5-14b", 14770033664},
      {"qwen2.5-32b", 32763876352},   {"qwen2.5-72b", 72706203648}, {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},     {"qwen3-4b", 4022468096},     {"qwen3-8b", 8190735360},
      {"qwen3-14b", 14768307200},     {"qwen3-32b", 32762123264},   {"mistral-7b", 7248023552}};
  for (const auto& [name, num_parameters] : models) {
    const auto device = make_counting_device();
    ModelConfig config;
    ASSERT_TRUE(find_known_model(name, config));
    EXPECT_EQ(fault_of(config), "") << name;
    EXPECT_EQ(Model(config, *device).num_parameters(), num_parameters) << name;
    const ModelConfig again = parse_model_config(model_config_json(config, DType::bf16), name);
    EXPECT_EQ(again.rope, config.rope) << name;
    EXPECT_EQ(again.head_dim(), config.head_dim()) << name;
    EXPECT_EQ(again.tied_head, config.tied_head) << name;
    EXPECT_EQ(again.max_positions, config.max_positions) << name;
    EXPECT_EQ(again.sliding_window, 0) << name;
    EXPECT_EQ(again.eos_token_id, config.eos_token_id) << name;
    EXPECT_EQ(Model(again, *device).num_parameters(), num_parameters) << name;
  }
}

// The kernels use the projections of queries, keys and values as one tensor, and the projections gate and up as another
// tensor. So k_proj, v_proj and up_proj follow the tensor before them without a gap, even if the size of that tensor is
// not a multiple of the alignment.
TEST(Llama, JoinsTensorsWithoutGaps) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const auto device = make_counting_device();
    const Model model(parsed(type, {{"attention_bias", true}, {"mlp_bias", true}, {"tie_word_embeddings", true}}),
                      *device);
    const ParameterTable& table = model.block(1).table();
    std::vector<ParameterSpec> specs = table.specs();
    std::ranges::sort(specs, {}, &ParameterSpec::offset);
    int64_t end = 0;
    for (const ParameterSpec& spec : specs) {
      const bool joins = spec.name.find("k_proj") != std::string::npos ||
                         spec.name.find("v_proj") != std::string::npos ||
                         spec.name.find("up_proj") != std::string::npos;
      EXPECT_EQ(spec.offset, joins ? end : (end + 63) / 64 * 64) << spec.name;
      end = spec.offset + spec.shape.num_elems();
      EXPECT_EQ(spec.decays, spec.shape.rank() == 2) << spec.name;
    }
    EXPECT_EQ(specs[1].name, "layers.1.self_attn.k_proj.weight");
    const auto q =
        static_cast<size_t>(std::ranges::find(table.specs(), "layers.1.self_attn.q_proj.weight", &ParameterSpec::name) -
                            table.specs().begin());
    const ParameterViews views{&table,
                               {reinterpret_cast<std::byte*>(64), DType::f32, {table.num_elems(Section::trainable)}}};
    EXPECT_EQ(views.joined(q, q + 2).shape, (Shape{24 + 12 + 12, 12}));
    EXPECT_EQ(model.file_name(specs[1].name), "model.layers.1.self_attn.k_proj.weight");
  }
}

TEST(Llama, ReadsItsConfiguration) {
  const ModelConfig a = parsed("llama", {{"attention_bias", true},
                                         {"attention_dropout", 0.1},
                                         {"rms_norm_eps", 1e-3},
                                         {"hidden_act", "gelu_pytorch_tanh"},
                                         {"eos_token_id", {7, 8, 9}},
                                         {"bos_token_id", 2},
                                         {"rope_theta", 5e5}});
  EXPECT_EQ(a.kv_heads(), 2);
  EXPECT_EQ(a.head_dim(), 6);
  EXPECT_EQ(a.attention_channels(), 24);  // 4 heads of 6 channels; hidden_size is 12
  EXPECT_TRUE(a.qkv_bias && a.o_bias && !a.mlp_bias && !a.head_norms && !a.tied_head);
  EXPECT_EQ(a.activation, Activation::gelu_tanh);
  EXPECT_EQ(a.layer_norm_epsilon, 1e-3);
  EXPECT_EQ(a.rope.theta, 5e5);
  EXPECT_EQ(a.eos_token_id, 7);
  EXPECT_THAT(a.more_end_ids, testing::ElementsAre(8, 9));
  EXPECT_EQ(a.bos_token_id, 2);
  EXPECT_EQ(a.unk_token_id, -1);
  EXPECT_EQ(a.max_positions, 64);
  const ModelConfig b = parsed("qwen2", {{"num_key_value_heads", nullptr}});
  EXPECT_TRUE(b.qkv_bias && !b.o_bias);
  EXPECT_EQ(b.kv_heads(), 4);
  EXPECT_TRUE(parsed("qwen3").head_norms);
}

TEST(Llama, Windows) {
  EXPECT_EQ(parsed("llama", {{"sliding_window", 5}}).window_of(0), 0);
  EXPECT_EQ(parsed("mistral").window_of(0), 4096);
  EXPECT_EQ(parsed("mistral", {{"sliding_window", 5}}).window_of(2), 5);
  EXPECT_EQ(parsed("mistral", {{"sliding_window", nullptr}}).window_of(2), 0);
  EXPECT_EQ(parsed("qwen2", {{"sliding_window", 5}}).window_of(2), 0);
  const ModelConfig layers =
      parsed("qwen2", {{"sliding_window", 5}, {"use_sliding_window", true}, {"max_window_layers", 2}});
  EXPECT_EQ(layers.window_of(1), 0);
  EXPECT_EQ(layers.window_of(2), 5);
  const json types{"sliding_attention", "full_attention", "full_attention"};
  const ModelConfig listed =
      parsed("qwen3", {{"sliding_window", 5}, {"use_sliding_window", true}, {"layer_types", types}});
  EXPECT_EQ(listed.window_of(0), 5);
  EXPECT_EQ(listed.window_of(2), 0);
  expect_refused("qwen3", {{"layer_types", types}}, "\"use_sliding_window\" is false");
  expect_refused("qwen3", {{"layer_types", {"full_attention"}}}, "not a list of 3 entries");
  expect_refused("qwen3", {{"layer_types", {"linear", "full_attention", "full_attention"}}}, "contains \"linear\"");
}

TEST(Llama, ReportsErrors) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    expect_refused(type, {{"hidden_size", json(json::value_t::discarded)}}, "\"hidden_size\" is missing");
    expect_refused(type, {{"intermediate_size", json(json::value_t::discarded)}}, "\"intermediate_size\" is missing");
    expect_refused(type, {{"num_key_value_heads", 3}},
                   "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
    expect_refused(type, {{"head_dim", 7}}, "heads have 7 channels, but rotary positions need an even number");
    expect_refused(type, {{"head_dim", 514}}, "head_dim is 514, but attention supports at most 512 channels");
    expect_refused(type, {{"hidden_act", "relu"}}, "\"hidden_act\" is \"relu\"");
    expect_refused(type, {{"num_local_experts", 8}}, "\"num_local_experts\" is 8");
    expect_refused(type, {{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5");
    expect_refused(type, {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}, "\"rope_type\" is \"dynamic\"");
    expect_refused(type, {{"rope_parameters", {{"rope_type", "longrope"}}}}, "\"rope_type\" is \"longrope\"");
    expect_refused(type, {{"rope_scaling", {{"type", "linear"}}}}, "\"factor\" is missing for rope type \"linear\"");
    expect_refused(type, {{"rope_scaling", 3}}, "\"rope_scaling\" is 3, not an object");
    expect_refused(type, {{"rope_theta", -1}}, "\"rope_theta\" is -1");
    expect_refused(type, {{"rope_scaling", {{"type", "linear"}, {"rope_type", "yarn"}}}},
                   "\"rope_type\" is \"yarn\", but \"type\" is \"linear\"");
    expect_refused(type, {{"rope_scaling", {{"rope_theta", 3}}}, {"rope_parameters", {{"rope_theta", 4}}}},
                   "\"rope_scaling\" and \"rope_parameters\" differ");
    const json sliding{"sliding_attention", "full_attention", "full_attention"};
    if (std::string_view(type) < "qwen") expect_refused(type, {{"layer_types", sliding}}, "\"layer_types\" contains");
    expect_refused(type, {{"rms_norm_eps", "x"}}, "\"rms_norm_eps\" is \"x\"");
  }
}

TEST(Rope, FrequenciesOfTransformers) {
  // The expected values are inv_freq of LlamaRotaryEmbedding in transformers 5.23, with these settings.
  Rope rope;
  rope.theta = 500;
  rope.scaling = Rope::Scaling::llama3;
  rope.factor = 8;
  rope.original_positions = 16;
  const auto near = [](double x) { return testing::FloatNear(static_cast<float>(x), static_cast<float>(x * 1e-6)); };
  EXPECT_THAT(rope_frequencies(rope, 8), testing::ElementsAreArray({near(0.576056361), near(0.02643428),
                                                                    near(0.00559017016), near(0.00118217699)}));
  // With 64 positions, the first wavelength, 2π, is short: below a quarter of the positions. Its frequency stays 1.
  rope.original_positions = 64;
  EXPECT_THAT(rope_frequencies(rope, 8),
              testing::ElementsAreArray({near(1), near(0.0976166327), near(0.00559017016), near(0.00118217699)}));
  rope = {};
  rope.theta = 500;
  rope.scaling = Rope::Scaling::yarn;
  rope.factor = 4;
  rope.original_positions = 16;
  EXPECT_THAT(
      rope_frequencies(rope, 16),
      testing::ElementsAreArray({near(1), near(0.287414551), near(0.05286856), near(0.0243123118), near(0.0111803403),
                                 near(0.00514142821), near(0.00236435398), near(0.00108727964)}));
  rope.scaling = Rope::Scaling::linear;
  EXPECT_THAT(rope_frequencies(rope, 4), testing::ElementsAreArray({near(0.25), near(0.0111803403)}));
}

TEST(Rope, ContextsAndScalings) {
  EXPECT_EQ(parsed("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}).max_positions, 256);
  const json yarn{{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32}, {"rope_theta", 1e6}};
  const ModelConfig config = parsed("qwen2", {{"rope_parameters", yarn}});
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_EQ(config.rope.theta, 1e6);
  const ModelConfig two = parsed("qwen2", {{"rope_parameters", yarn}, {"rope_theta", 5}});
  EXPECT_EQ(two.rope.theta, 1e6);
  EXPECT_THAT(two.notes, testing::ElementsAre(HasSubstr("\"rope_theta\" is 5, and 1000000 inside")));
  EXPECT_DOUBLE_EQ(config.rope.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(40, 1, 1), 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(40, 0.707, 0), 0.1 * std::log(40.0) + 1);
  EXPECT_DOUBLE_EQ(yarn_attention_factor(0.5, 0, 0), 1);
}

}  // namespace
}  // namespace tessera
