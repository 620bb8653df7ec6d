// What Tessera does with each key of a config.json. docs/config-keys.md shows the same tables; a test compares them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace tessera {

using Json = nlohmann::ordered_json;

struct Architecture;

enum class KeyUse : uint8_t {
  read,     // Tessera reads the key
  unused,   // the key has no effect on what the model computes
  noted,    // models of this type ignore the key, and a value that is not neutral gives a note
  refused,  // a value that is not neutral is an error: it changes the computation, or it looks as if it should
  renamed,  // a name that other types or programs give to the key `why`. An error if the key `why` is missing
};

// What a key is about. The first row for a key counts, and rows come in the order of their topics. The order matters
// only for keys that match several rows: special names come before general patterns.
enum class KeyTopic : uint8_t {
  file,     // which model this is, its tokens
  general,  // keys that an architecture reads, and what Tessera does not support
  // Parts of the computation that other architectures have, or that this one always has.
  qkv_bias,
  biases,
  scales,  // also norms of heads and limits of logits
  alibi,
  position_type,
  use_rope,
  rope,
  blocks,
  // Keys without effect.
  noted,
  unused,
  initializer,
  training_program,  // of the program that trained the published models
  programs,
  // Other names of keys, as patterns, by what they mean.
  attention_dropout,
  dropout,
  epsilon,
  activation,
  heads,
  num_layers,
  hidden_size,
  ff_dim,
  embeddings,
  others,
};

// One row of a table of keys.
struct ConfigKeys {
  KeyTopic topic;
  const char* names;  // one or several keys, separated by spaces. A name with * is a pattern of letters, without case
  KeyUse use;
  const char* neutral = "[]";  // a JSON list: values that change nothing. null, "", [] and {} are always neutral
  // Renamed: the key to use instead, then its other names. Otherwise: the reason or the remedy, a sentence without dot.
  // In a reason, {} stands for the model type.
  const char* why = "";
  uint32_t traits = 0;  // in a table of a family: the architectures with one of these traits; 0: all of the family
};

// The rows that apply to all architectures.
std::span<const ConfigKeys> shared_keys();
// All rows that apply to an architecture. The first row for a key counts. Rows come in the order of their topics.
// Within a topic, the rows of the architecture come first, then its family's, then the shared rows.
std::vector<const ConfigKeys*> keys_of(const Architecture& architecture);

// Reasons and patterns of names that several tables use.
namespace key_words {
inline constexpr const char* kOtherType =
    "Models of this type do not have it: remove the key, or use the model type that the weights need";
inline constexpr const char* kOtherShape = "other keys define the shape of models of this type";
inline constexpr const char* kQkvBiases = "qkv_bias add_qkv_bias use_qkv_bias";
inline constexpr const char* kBiases = "bias use_bias add_bias_linear";
inline constexpr const char* kHeadNorms = "qk_norm use_qk_norm qk_layernorm use_qk_layernorm";
inline constexpr const char* kAlibi = "alibi use_alibi";
inline constexpr const char* kPositionTypes =
    "position_embedding_type position_embedding position_embeddings pos_emb* pos_enc* position_enc* positional_e*";
inline constexpr const char* kRopeNames = "rope* rotary*";
inline constexpr const char* kActivations =
    "activation *_activation *activation_f* *activation_type *act_fn* *act_func* hidden_act_* nonlinearity";
inline constexpr const char* kEpsilons = "eps *_eps *epsilon* *norm*eps* *rms*eps*";
inline constexpr const char* kFfDims =
    "n_inner inner_dim d_ff *ffn*size* *ffn*dim* *mlp_dim* *mlp_size* *mlp_hidden* dim_feedforward "
    "*feed_forward_length*";
inline constexpr const char* kInitializers = "*init*std* *init*range* init_scale initializer_scale";
}  // namespace key_words

// A key inside "rope_parameters" or "rope_scaling".
struct RopeKeys {
  const char* names;    // as in ConfigKeys
  const char* readers;  // the rope types that read the key, separated by spaces; "*": all
  const char* neutral;  // as in ConfigKeys; for the other rope types. nullptr: they ignore every value
};
std::span<const RopeKeys> rope_keys();

// Checks the names and values of all keys of a config.json. `where` is its path. Throws InputError if a value is
// refused, or if an unknown key seems to be a misspelt key that is missing. Adds a line to `notes` for keys that are
// ignored and might matter to the user.
void check_config_keys(const Json& config, const Architecture& architecture, const std::string& where,
                       std::vector<std::string>& notes);

// Checks the keys of `parameters`, which is "rope_parameters" or "rope_scaling". Throws InputError.
void check_rope_keys(const Json& parameters, const std::string& rope_type, const std::string& where);

}  // namespace tessera
