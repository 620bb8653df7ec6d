#include "tessera/model/bloom_config.h"

#include "tessera/model/architecture.h"
#include "tessera/model/bloom.h"
#include "tessera/model/bloom_gguf.h"
#include "tessera/model/config_reader.h"

namespace tessera {
namespace {

using namespace key_words;

constexpr const char* kBloomActivations = R"(["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"])";
constexpr const char* kBloomActivation = "BLOOM always uses GELU with tanh";

constexpr ConfigKeys kBloomKeys[] = {
    {KeyTopic::general,
     "n_embed n_embd n_layer num_hidden_layers num_layers n_head num_attention_heads num_heads ff_dim", KeyUse::read},
    {KeyTopic::general, "layer_norm_epsilon hidden_dropout attention_dropout", KeyUse::read},
    {KeyTopic::general, "apply_residual_connection_post_layernorm initializer_range", KeyUse::read, "[]", "",
     kBloomTrait},
    {KeyTopic::qkv_bias, kQkvBiases, KeyUse::refused, "[true]", kOtherType, kBloomTrait},
    {KeyTopic::biases, kBiases, KeyUse::refused, "[true]", kOtherType},
    {KeyTopic::alibi, kAlibi, KeyUse::refused, "[true]", kOtherType, kBloomTrait},
    {KeyTopic::position_type, kPositionTypes, KeyUse::refused, R"(["alibi"])", kOtherType, kBloomTrait},
    {KeyTopic::rope, kRopeNames, KeyUse::refused, "[false]", "Models of this type have no rotary positions"},
    {KeyTopic::blocks, "n_inner", KeyUse::refused, "[]", kOtherType, kBloomTrait},
    {KeyTopic::blocks, "hidden_act", KeyUse::refused, kBloomActivations, kBloomActivation, kBloomTrait},
    {KeyTopic::blocks, kActivations, KeyUse::refused, kBloomActivations, kBloomActivation, kBloomTrait},
    {KeyTopic::noted, "intermediate_size", KeyUse::noted, "[]", kOtherShape, kBloomTrait},
    {KeyTopic::noted, "num_key_value_heads head_dim", KeyUse::noted, "[]", kOtherShape},
    {KeyTopic::training_program,
     "max_position_embeddings seq_length n_positions offset_alibi skip_bias_add skip_bias_add_qkv bias_dropout_fusion "
     "masked_softmax_fusion attention_softmax_in_fp32",
     KeyUse::unused, "[]", "of the program that trained BLOOM"},
    {KeyTopic::dropout, "resid_drop* resid_pdrop residual_drop* hidden_drop*", KeyUse::renamed, "[0]",
     "hidden_dropout"},
    {KeyTopic::epsilon, kEpsilons, KeyUse::renamed, "[]", "layer_norm_epsilon"},
    {KeyTopic::heads, "n_heads num_head heads *head_count* *attention_heads* *attn_heads* *q_heads* *query_heads*",
     KeyUse::renamed, "[]", "n_head num_attention_heads num_heads"},
    {KeyTopic::num_layers, "n_layers num_layer hidden_layers n_blocks num_blocks *layer_count* *block_count*",
     KeyUse::renamed, "[]", "n_layer num_hidden_layers num_layers"},
    {KeyTopic::hidden_size,
     "d_model dim_model model_dim embed_dim emb_dim embedding_dim embedding_size embedding_length", KeyUse::renamed,
     "[]", "hidden_size n_embed n_embd"},
    {KeyTopic::others, kInitializers, KeyUse::renamed, "[]", "initializer_range", kBloomTrait},
};

void read_bloom_config(const ConfigReader& read, ModelConfig& config) {
  read_bloom_sizes(read, config);
  config.initializer_range = read.number({"initializer_range"}, 0.02, 0, 1e6);
  config.residual_from_norm = read.boolean("apply_residual_connection_post_layernorm", false);
  read_dropouts(read, 0, config);
}

std::string bloom_fault(const ModelConfig& config) {
  if (config.ff_dim == 4 * config.hidden_size) return "";
  return fmt::format("ff_dim is {}, but BLOOM's feed-forward layer has 4 x hidden_size = {} channels", config.ff_dim,
                     4 * config.hidden_size);
}

void write_bloom_config(const ModelConfig& config, Json& json) {
  if (!config.tied_head) set_default(json, "tie_word_embeddings", false);
  set_default(json, "architectures", Json::array({"BloomForCausalLM"}));
  if (!json.contains("n_embed")) set_default(json, "hidden_size", config.hidden_size);
  if (!json.contains("num_hidden_layers")) set_default(json, "n_layer", config.num_layers);
  if (!json.contains("num_attention_heads")) set_default(json, "n_head", config.num_heads);
  set_default(json, "layer_norm_epsilon", config.layer_norm_epsilon);
  set_default(json, "initializer_range", config.initializer_range);
  set_default(json, "apply_residual_connection_post_layernorm", config.residual_from_norm);
  set_default(json, "hidden_dropout", config.hidden_dropout);
  set_default(json, "attention_dropout", config.attention_dropout);
  set_default(json, "use_cache", true);
}

// The sizes of bigscience/bloom-*.
std::vector<KnownModel> known_bloom_models() {
  struct Shape {
    const char* name;
    int64_t hidden_size, num_layers, num_heads;
  };
  constexpr Shape kShapes[] = {
      {"bloom-560m", 1024, 24, 16}, {"bloom-1b1", 1536, 24, 16}, {"bloom-1b7", 2048, 24, 16},
      {"bloom-3b", 2560, 30, 32},   {"bloom-7b1", 4096, 30, 32}, {"bloom-176b", 14336, 70, 112},
  };
  std::vector<KnownModel> models;
  for (const Shape& shape : kShapes) {
    ModelConfig config;
    config.vocab_size = 250880;
    config.hidden_size = shape.hidden_size;
    config.num_layers = shape.num_layers;
    config.num_heads = shape.num_heads;
    config.ff_dim = 4 * shape.hidden_size;
    config.unk_token_id = 0;
    config.bos_token_id = 1;
    config.eos_token_id = 2;
    config.pad_token_id = 3;
    models.push_back({shape.name, std::move(config)});
  }
  return models;
}

}  // namespace

std::span<const ConfigKeys> bloom_keys() {
  return kBloomKeys;
}

void read_bloom_sizes(const ConfigReader& read, ModelConfig& config) {
  config.hidden_size = read.integer({"hidden_size", "n_embed", "n_embd"}, -1, 1, kMaxDimension);
  config.num_layers = read.integer({"n_layer", "num_hidden_layers", "num_layers"}, -1, 1, kMaxLayers);
  config.num_heads = read.integer({"n_head", "num_attention_heads", "num_heads"}, -1, 1, kMaxDimension);
  config.ff_dim = read.integer({"ff_dim"}, 4 * config.hidden_size, 1, kMaxDimension * 4);
  config.layer_norm_epsilon = read.number({"layer_norm_epsilon"}, 1e-5, 1e-30, 1);
}

void read_dropouts(const ConfigReader& read, double fallback, ModelConfig& config) {
  config.hidden_dropout = read.number({"hidden_dropout"}, fallback, 0, 0.999);
  config.attention_dropout = read.number({"attention_dropout"}, fallback, 0, 0.999);
}

double parameters_of_bloom_block(const ModelConfig& config) {
  const auto C = static_cast<double>(config.hidden_size), F = static_cast<double>(config.ff_dim);
  return C * (4 * C + 2 * F);
}

extern constexpr Architecture kBloom = {
    .name = "bloom",
    .family = "BLOOM",
    .block_class = "BloomBlock",
    .tied_by_default = true,
    .family_keys = bloom_keys,
    .key_traits = kBloomTrait,
    .read = read_bloom_config,
    .fault_of = bloom_fault,
    .write = write_bloom_config,
    .parameters_of_block = parameters_of_bloom_block,
    .root = {"word_embeddings.weight", "word_embeddings_layernorm"},
    .head = {.final_norm = "ln_f", .weight = kHeadWeight},
    .file_prefix = "transformer.",
    .gguf = &kBloomGguf,
    .constants = [](const ModelConfig& config) { return alibi_slopes(config.num_heads); },
    .make_block = [](const ModelConfig& config, int64_t layer, View constants) -> std::unique_ptr<Block> {
      return std::make_unique<BloomBlock>(config, layer, constants);
    },
    .known_models = known_bloom_models,
};

}  // namespace tessera
