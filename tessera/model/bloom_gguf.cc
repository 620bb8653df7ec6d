#include "tessera/model/bloom_gguf.h"

#include "tessera/base/json.h"

namespace tessera {

namespace {

constexpr GgufLayer kBloomLayers[] = {
    {"word_embeddings", "token_embd"},
    {"word_embeddings_layernorm", "token_embd_norm"},
    {"ln_f", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attention.query_key_value", "attn_qkv"},
    {"self_attention.dense", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
};

std::string bloom_gguf_fault(const ModelConfig& config) {
  return config.residual_from_norm ? "apply_residual_connection_post_layernorm must be false" : "";
}

std::string no_note(const ModelConfig&) {
  return "";
}

// ALiBi has no longest text. llama.cpp uses this number as the default length of its context: the length in
// pretraining, which config.json may contain, or the length of all published models.
uint32_t context_of(const ModelConfig& config) {
  constexpr uint32_t kPublished = 2048;
  if (config.original_json.empty()) return kPublished;
  const nlohmann::json json = nlohmann::json::parse(config.original_json, nullptr, false);
  const auto length = json.is_object() ? json.find("seq_length") : json.end();
  const bool is_length =
      json.is_object() && length != json.end() && length->is_number_integer() && *length >= 1 && *length <= INT32_MAX;
  return is_length ? length->get<uint32_t>() : kPublished;
}

GgufKeys bloom_gguf_keys(const ModelConfig& config) {
  return {
      {"context_length", context_of(config)},
      {"embedding_length", static_cast<uint32_t>(config.hidden_size)},
      {"feed_forward_length", static_cast<uint32_t>(config.ff_dim)},
      {"block_count", static_cast<uint32_t>(config.num_layers)},
      {"attention.head_count", static_cast<uint32_t>(config.num_heads)},
      {"attention.head_count_kv", static_cast<uint32_t>(config.num_heads)},
      {"attention.layer_norm_epsilon", static_cast<float>(config.layer_norm_epsilon)},
  };
}

// Our rows are [heads, 3, D]: the query, key and value of a head follow each other. llama.cpp has [3, heads, D].
GgufRows bloom_rows(const ModelConfig& config, std::string_view layer) {
  return layer == "self_attention.query_key_value" ? GgufRows{config.num_heads, 3, config.head_dim()} : GgufRows{};
}

std::vector<float> no_rope(const ModelConfig&) {
  return {};
}

}  // namespace

const GgufForm kBloomGguf = {"bloom",         "h.",       kBloomLayers, bloom_gguf_fault, no_note,
                             bloom_gguf_keys, bloom_rows, no_rope};

}  // namespace tessera
