// The definition of a model: the fields of a Hugging Face config.json that the forward pass depends on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

struct ModelConfig {
  std::string architecture = "bloom";  // "bloom" or "gpt"; see the table in model/model.cc
  int64_t vocab_size = 0;              // V
  int64_t hidden_size = 0;             // C
  int64_t num_layers = 0;              // L
  int64_t num_heads = 0;               // H, divides C
  int64_t ff_dim = 0;                  // inner channels of the feed-forward layer; 4·C in BLOOM
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  // standard deviation of random BLOOM weights
  bool residual_from_norm = false;  // apply_residual_connection_post_layernorm
  bool tied_head = true;            // tie_word_embeddings: the head's weight is the embedding
  double hidden_dropout = 0, attention_dropout = 0;
  int32_t unk_token_id = 0, bos_token_id = 1, pad_token_id = 3;
  int32_t eos_token_id = -1;  // ends a text; −1: not given, the tokenizer decides
  // Patterns of the shell (* ? [...]) for the names of tensors that training leaves as they are. Not in config.json.
  std::vector<std::string> frozen;
  std::string original_json;  // the text that this was read from; used when the model is saved again

  int64_t head_dim() const { return hidden_size / num_heads; }
};

// Reads a config.json of model_type "bloom" or "gpt". `where` names it in errors. Throws InputError if the text is not
// JSON, has another model type, or has missing or invalid values (with key and value).
ModelConfig parse_model_config(std::string_view text, const std::string& where);
ModelConfig read_model_config(const std::filesystem::path& path);

// Shapes with known names: bloom-560m, bloom-1b1, bloom-1b7, bloom-3b, bloom-7b1, bloom-176b.
std::vector<std::string> known_model_names();
bool find_known_model(std::string_view name, ModelConfig& config);

// Describes what is invalid or contradictory in the numbers; empty if they are valid.
std::string fault_of(const ModelConfig& config);

// The config.json to save with weights of `dtype`.
std::string model_config_json(const ModelConfig& config, DType dtype);

}  // namespace tessera
