// The configuration of a model: the fields of a Hugging Face config.json that Tessera uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/model/adapter.h"
#include "tessera/model/quantization.h"
#include "tessera/model/rope.h"
#include "tessera/ops/kernels.h"

namespace tessera {

struct ModelConfig {
  std::string architecture;          // the "model_type" of config.json; see architecture.h
  int64_t vocab_size = 0;            // V
  int64_t vocab_size_in_files = 0;   // rows of embedding and head in the model's files, if V is larger; otherwise 0
  int64_t hidden_size = 0;           // C
  int64_t num_layers = 0;            // L
  int64_t num_heads = 0;             // H; divides C, unless head_channels is set
  int64_t ff_dim = 0;                // F: inner channels of the feed-forward layer; 4·C in BLOOM
  double layer_norm_epsilon = 1e-5;  // of all norms
  double initializer_range = 0.02;   // standard deviation of random weights; not used by gpt
  bool residual_from_norm = false;   // the key apply_residual_connection_post_layernorm
  double hidden_dropout = 0, attention_dropout = 0;
  bool tied_head = true;  // the key tie_word_embeddings; if true, the head's weight is the embedding
  // Token ids; −1: not given. load/special_tokens.h says which token ends a text in training. Only the ids of end
  // tokens are used. The others are written to a config.json if the model was given without one.
  int32_t unk_token_id = -1, bos_token_id = -1, pad_token_id = -1, eos_token_id = -1;
  std::vector<int32_t> more_end_ids;  // like eos_token_id, these tokens end a generated text
  std::string end_fault;              // what is wrong with "eos_token_id" if none of its values is a token id
  std::string original_json;          // the config.json that was read; the saved config.json is a changed copy of it
  std::vector<std::string> notes;     // what the user should know about the model's files: values that have no effect

  // ---- only Llama's family (llama_config.h)
  int64_t num_kv_heads = 0;   // K heads of keys and values; K divides H; 0 means K = H
  int64_t head_channels = 0;  // D channels of each head; 0 means D = C / H
  Activation activation = Activation::silu;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool head_norms = false;  // a norm on each head of queries and keys
  Rope rope;
  int64_t max_positions = 0;         // the longest sequence in tokens; 0: no limit
  int64_t sliding_window = 0;        // in layers with a window, a query sees at most this many keys; 0: no windows
  std::vector<bool> sliding_layers;  // which layers have a window; empty: all layers

  // ---- not in config.json: the adapter of the model. Training then changes only the adapter, and what its options
  // train whole
  std::optional<AdapterOptions> adapter;

  // Which frozen weights are in NF4: by the key quantization_config, or by --base-dtype
  std::optional<Quantization> quantization;

  int64_t head_dim() const { return head_channels > 0 ? head_channels : hidden_size / num_heads; }
  int64_t kv_heads() const { return num_kv_heads > 0 ? num_kv_heads : num_heads; }
  int64_t attention_channels() const { return num_heads * head_dim(); }  // H·D
  int64_t kv_channels() const { return kv_heads() * head_dim(); }        // K·D; also the row length of the key cache
  int64_t window_of(int64_t layer) const {
    const bool slides = sliding_layers.empty() || sliding_layers[static_cast<size_t>(layer)];
    return slides ? sliding_window : 0;
  }
};

// Reads a config.json. `where` names the file in errors. Throws InputError, with key and value, if the text is not
// JSON, if a value is missing or invalid, or if the model type or a key is not supported (config_keys.h). Values that
// are wrong but not used only add lines to ModelConfig::notes.
ModelConfig parse_model_config(std::string_view text, const std::string& where);
ModelConfig read_model_config(const std::filesystem::path& path);

// Models that Tessera knows by name, such as bloom-560m and llama-3.2-1b. find_known_model() sets
// `config` to the configuration of the model `name`. If the name is not known, it returns false and leaves `config`
// unchanged.
std::vector<std::string> known_model_names();
bool find_known_model(std::string_view name, ModelConfig& config);

// Describes the first value that is invalid or contradicts another value. Returns "" if all values are valid.
std::string fault_of(const ModelConfig& config);

// The text of the config.json to save with weights of type `dtype`.
std::string model_config_json(const ModelConfig& config, DType dtype);

// The values of a configuration that decide what the parameters of the model compute. Ranks compare them, and
// checkpoints record them: a run can only continue with the same values.
nlohmann::ordered_json model_fingerprint(const ModelConfig& config);

}  // namespace tessera
