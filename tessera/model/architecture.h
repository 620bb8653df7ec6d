// The architectures. One row has everything that Tessera knows about one "model_type" of config.json. A new
// architecture needs a file with its row, and its name in architectures.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/config.h"
#include "tessera/model/config_keys.h"
#include "tessera/model/root.h"

namespace tessera {

class ConfigReader;
struct GgufForm;

// A model that users may give by name: --model bloom-560m.
struct KnownModel {
  std::string name;
  ModelConfig config;
};

// The functions get configurations of this architecture. A function without the words "or null" must be set.
struct Architecture {
  const char* name;              // the "model_type" of config.json
  const char* family;            // the name of its family in the help
  const char* block_class;       // the Python class of its blocks in transformers or torch
  bool tied_by_default = false;  // the head is tied if config.json lacks "tie_word_embeddings"
  bool free_sizes = false;       // users may give the sizes as settings: --model NAME --hidden-size 64

  // ---- config.json
  // What happens with the keys that not all architectures share (config_keys.h): the rows of this architecture, and the
  // rows in the table of its family that apply to its traits. own_keys may be empty, family_keys null.
  std::span<const ConfigKeys> own_keys = {};
  std::span<const ConfigKeys> (*family_keys)() = nullptr;
  uint32_t key_traits = 0;
  // Reads the keys that shared_keys() does not read. Throws InputError.
  void (*read)(const ConfigReader& read, ModelConfig& config);
  // Describes a value that is invalid for this architecture, or returns "". Other values are checked before. Or null.
  std::string (*fault_of)(const ModelConfig& config) = nullptr;
  // Adds the keys that a config.json of this architecture needs and that `json` lacks.
  void (*write)(const ModelConfig& config, Json& json);
  // Adds values to model_fingerprint(). A checkpoint records them, so a new version must keep keys and values. Or null.
  void (*add_to_fingerprint)(const ModelConfig& config, Json& fingerprint) = nullptr;
  // The approximate number of parameters of a block. A double, because the values of a wrong file may be too large.
  double (*parameters_of_block)(const ModelConfig& config);

  // ---- tensors
  Root::Names root;
  Head::Parts head;
  bool unit_variance_embedding = false;  // random embeddings have standard deviation 1 instead of initializer_range
  const char* file_prefix = "";          // begins the names of tensors in files, except "lm_head.*"

  // How the models become GGUF files (gguf.h), or null: they cannot.
  const GgufForm* gguf = nullptr;

  // ---- computation
  // Returns f32 values that the blocks or `begin` need on the device. Or null.
  std::vector<float> (*constants)(const ModelConfig& config) = nullptr;
  // Computes what all blocks need for a batch with at least one token (Model::begin). Or null.
  void (*begin)(const ModelConfig& config, View constants, Frame& frame) = nullptr;
  std::unique_ptr<Block> (*make_block)(const ModelConfig& config, int64_t layer, View constants);

  // The models that users may give by name. find_known_model() sets ModelConfig::architecture. Or null.
  std::vector<KnownModel> (*known_models)() = nullptr;
};

// All architectures, in the order of docs/config-keys.md.
std::span<const Architecture* const> architectures();
// The architecture with this name. nullptr: there is none.
const Architecture* find_architecture(std::string_view name);
// The architecture of a configuration, which must be valid.
const Architecture& architecture_of(const ModelConfig& config);

// The names of all architectures for an error: "bloom", "gpt" and "llama".
std::string supported_types();
// The families of all architectures, without duplicates: Llama, BLOOM.
std::vector<std::string> model_families();
// The Python classes of blocks, without duplicates, in the order of their names.
std::vector<std::string> block_classes();

// See Architecture::free_sizes.
bool has_free_sizes(std::string_view name);
std::vector<std::string> names_with_free_sizes();
// The names of shapes, which have no files: architectures with free sizes, then known models.
std::vector<std::string> shape_names();
bool is_shape_name(std::string_view name);

}  // namespace tessera
