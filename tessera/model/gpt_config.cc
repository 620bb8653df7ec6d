#include "tessera/model/architecture.h"
#include "tessera/model/bloom_config.h"
#include "tessera/model/config_reader.h"
#include "tessera/model/gpt.h"

namespace tessera {
namespace {

using namespace key_words;

constexpr const char* kGptActivations = R"(["relu"])";
constexpr const char* kGptActivation = "Models of type gpt always use ReLU";

// In addition to the keys that gpt shares with BLOOM.
constexpr ConfigKeys kGptKeys[] = {
    {KeyTopic::general, "dropout", KeyUse::read},
    {KeyTopic::blocks, "hidden_act", KeyUse::refused, kGptActivations, kGptActivation},
    {KeyTopic::blocks, kActivations, KeyUse::refused, kGptActivations, kGptActivation},
    {KeyTopic::blocks, "apply_residual_connection_post_layernorm", KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::initializer, "initializer_range", KeyUse::unused, "[]",
     "gpt initializes weights as torch.nn.TransformerEncoder"},
    {KeyTopic::dropout, "dropout_p dropout_prob* dropout_rate", KeyUse::renamed, "[0]", "dropout"},
    {KeyTopic::ff_dim, "intermediate_size", KeyUse::renamed, "[]", "ff_dim"},
    {KeyTopic::ff_dim, kFfDims, KeyUse::renamed, "[]", "ff_dim"},
};

void read_gpt_config(const ConfigReader& read, ModelConfig& config) {
  read_bloom_sizes(read, config);
  read_dropouts(read, read.number({"dropout"}, 0, 0, 0.999), config);
}

void write_gpt_config(const ModelConfig& config, Json& json) {
  if (!config.tied_head) set_default(json, "tie_word_embeddings", false);
  set_default(json, "hidden_size", config.hidden_size);
  set_default(json, "num_layers", config.num_layers);
  set_default(json, "num_heads", config.num_heads);
  set_default(json, "ff_dim", config.ff_dim);
  set_default(json, "dropout", config.hidden_dropout);
  if (config.attention_dropout != config.hidden_dropout) {
    set_default(json, "hidden_dropout", config.hidden_dropout);
    set_default(json, "attention_dropout", config.attention_dropout);
  }
}

}  // namespace

extern constexpr Architecture kGpt = {
    .name = "gpt",
    .family = "GPT",
    .block_class = "TransformerEncoderLayer",  // of torch
    .tied_by_default = true,
    .free_sizes = true,
    .own_keys = kGptKeys,
    .family_keys = bloom_keys,
    .read = read_gpt_config,
    .write = write_gpt_config,
    .parameters_of_block = parameters_of_bloom_block,
    .root = {"token_embedding.weight"},
    .head = {.weight = kHeadWeight, .bias = "lm_head.bias", .like_linear = true},
    .unit_variance_embedding = true,
    .make_block = [](const ModelConfig& config, int64_t layer, View) -> std::unique_ptr<Block> {
      return std::make_unique<GptBlock>(config, layer);
    },
};

}  // namespace tessera
