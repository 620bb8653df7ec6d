// Model folders: from settings to a configuration, a tokenizer and parameters, and back to a folder.
#pragma once

#include <filesystem>
#include <functional>

#include "tessera/comm/world.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/settings/settings.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/read_ahead.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// UsageError when a training run would end by replacing the model that it starts from: --output-dir X with --model
// X/model.
void check_model_is_kept(const Settings& settings);

// The model that --model and --init ask for: a folder's (or a file's) config.json, with --init random also a known name
// ("bloom-560m") or "gpt" with the sizes of the flags. UsageError, InputError.
ModelConfig model_config_of(const Settings& settings);

// --tokenizer, or else the model folder's. Where the configuration does not tell which token ends a text, it is set to
// the one of the tokenizer. InputError when the tokenizer has ids that the model's vocabulary has no row for, or
// another token that ends a text than the configuration.
Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config);

// Begins to bring --model's weights into memory, where load_or_initialize() will read them: for one node, by one of its
// ranks. Of several nodes each reads its own part alone. Throws nothing; to be ended once they are read.
ReadAhead read_weights_ahead(const Settings& settings, const World* world);

// Reads a Hugging Face folder's tensors into the engine's parameters: of each what this rank keeps, or with
// sync_module_states all on rank 0, which sends them to the others. InputError names what is missing, extra or
// misshapen, or a head that is not the embedding; UsageError, weights that are not those of rank 0. Collective.
void load_parameters(Engine& engine, const std::filesystem::path& folder, Communicator& world, ThreadPool& pool);

// --init: reads the folder of --model, or draws from --seed. Collective.
void load_or_initialize(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool);

// Writes a model in --save-dtype as a Hugging Face folder that transformers loads; it appears whole or not at all. What
// stands beside --model's weights and beside the tokenizer (generation_config.json, tokenizer_config.json) comes along.
class ModelWriter {
 public:
  // `model` must outlive it. UsageError, RunError.
  ModelWriter(const Model& model, const std::filesystem::path& folder, const Tokenizer& tokenizer,
              const Settings& settings);
  // Elements `range` of a unit's flat parameters (host memory, any floating-point type), each unit once, whole or in
  // pieces that follow each other, so that no more need be in memory. RunError: also where an element is not finite in
  // --save-dtype; the folder then stays as it was.
  void write(int64_t unit, ElemRange range, View parameters);
  void finish();  // RunError

 private:
  void check_saved_range(const ParameterSpec& spec, View part, int64_t first) const;

  const Model& model_;
  const DType dtype_;
  const std::filesystem::path folder_;
  AtomicFolder target_;
  std::optional<SafetensorsWriter> tensors_;
};

// The tokenizer's own small files, for a folder that has only tokenizer.json.
std::string default_tokenizer_config(const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace tessera
