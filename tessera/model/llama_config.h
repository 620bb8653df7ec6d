// Llama's family: architectures with the block of llama.h, whose config.json has the keys of Llama's. They differ by
// the values of a LlamaType.
#pragma once

#include <span>

#include "tessera/model/architecture.h"

namespace tessera {

// A published model: its sizes, as in its config.json.
struct LlamaShape {
  const char* name;
  int64_t vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, ff_dim, max_positions;
  double epsilon, theta;
  double llama3_factor;  // factor of the llama3 scaling of rotary positions; 0: no scaling
  bool tied_head;
  int32_t bos_token_id, eos_token_id;
};

struct LlamaType {
  const char* name;                // as in Architecture
  const char* family;              // as in Architecture
  const char* class_name;          // the Python class of the model in transformers: the key "architectures"
  const char* block_class;         // as in Architecture
  bool biases_always = false;      // queries, keys and values have biases, whatever the keys say
  bool may_have_biases = false;    // whether the key "attention_bias" is read
  bool may_have_mlp_bias = false;  // the same for the key "mlp_bias"
  bool head_norms = false;         // a norm on each head of queries and keys
  enum class Window { never, always, some_layers } window = Window::never;
  // Values of missing keys.
  int64_t kv_heads = 0;          // num_key_value_heads; 0: the value of num_attention_heads
  int64_t head_dim = 0;          // 0: hidden_size / num_attention_heads
  int64_t max_positions = 2048;  // max_position_embeddings
  std::span<const LlamaShape> shapes = {};
  std::span<const ConfigKeys> own_keys = {};  // as in Architecture
  const GgufForm* gguf = nullptr;             // as in Architecture

  // The rows of llama_keys() that apply, as bits.
  enum Trait : uint32_t {
    kNoWindow = 1,
    kUniformWindow = 2,
    kLayerWindows = 4,
    kWindow = kUniformWindow | kLayerWindows,
    kAttentionBias = 8,  // the key "attention_bias" is read
    kQkvBiases = 16,     // biases_always
    kNoBiases = 32,
    kMlpBias = 64,  // the key "mlp_bias" is read
    kNoMlpBias = 128,
    kHeadNorms = 256,
  };
  constexpr uint32_t traits() const {
    return (window == Window::never    ? kNoWindow
            : window == Window::always ? kUniformWindow
                                       : kLayerWindows) |
           (may_have_biases ? kAttentionBias
            : biases_always ? kQkvBiases
                            : kNoBiases) |
           (may_have_mlp_bias ? kMlpBias : kNoMlpBias) | (head_norms ? kHeadNorms : 0u);
  }
};

std::span<const ConfigKeys> llama_keys();
void read_llama_config(const LlamaType& type, const ConfigReader& read, ModelConfig& config);
void write_llama_config(const LlamaType& type, const ModelConfig& config, Json& json);
void add_llama_fingerprint(const ModelConfig& config, Json& fingerprint);
std::string llama_fault(const ModelConfig& config);
double parameters_of_llama_block(const ModelConfig& config);
std::vector<float> rotary_frequencies(const ModelConfig& config);
// Computes the rotary angles of the batch's tokens, which stay on the stack.
void begin_rotary(const ModelConfig& config, View frequencies, Frame& frame);
std::unique_ptr<Block> make_llama_block(const ModelConfig& config, int64_t layer, View constants);
std::vector<KnownModel> known_llama_models(const LlamaType& type);

// The row of an architecture of the family. kType is a constexpr variable.
template <const LlamaType& kType>
constexpr Architecture llama_architecture() {
  return {
      .name = kType.name,
      .family = kType.family,
      .block_class = kType.block_class,
      .own_keys = kType.own_keys,
      .family_keys = llama_keys,
      .key_traits = kType.traits(),
      .read = [](const ConfigReader& read, ModelConfig& config) { read_llama_config(kType, read, config); },
      .fault_of = llama_fault,
      .write = [](const ModelConfig& config, Json& json) { write_llama_config(kType, config, json); },
      .add_to_fingerprint = add_llama_fingerprint,
      .parameters_of_block = parameters_of_llama_block,
      .root = {"embed_tokens.weight"},
      .head = {.final_norm = "norm", .norm = Norm::Kind::rms, .weight = kHeadWeight},
      .file_prefix = "model.",
      .gguf = kType.gguf,
      .constants = rotary_frequencies,
      .begin = begin_rotary,
      .make_block = make_llama_block,
      .known_models = [] { return known_llama_models(kType); },
  };
}

}  // namespace tessera
