// Model folders: reads configuration, tokenizer and parameters, and writes a model as a folder.
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

// Throws UsageError if training would replace its own initial model at the end. Example: --output-dir X with --model
// X/model.
void check_model_is_kept(const Settings& settings);

// The configuration for --model and --init: the config.json of a folder, or the file itself. With --init random,
// --model may also be a known name ("bloom-560m"), or "gpt" with sizes from flags. UsageError, InputError.
ModelConfig model_config_of(const Settings& settings);

// The tokenizer of --tokenizer, otherwise of the model folder. Sets config.eos_token_id from the tokenizer if the
// configuration does not define it. InputError if the tokenizer has ids beyond the model's vocabulary, or if its
// end-of-text token differs from the configuration. UsageError.
Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config);

// Starts to read the weight files of --model into the page cache for load_or_initialize(). Only local rank 0 does this,
// and only if all ranks are on one node. On several nodes, each rank reads only its own part, without reading ahead.
// Throws nothing. Destroy the result when the weights are loaded.
ReadAhead read_weights_ahead(const Settings& settings, const World* world);

// Reads the tensors of a Hugging Face folder into the engine's parameters. Each rank reads the parts that it keeps.
// With sync_module_states, rank 0 reads everything and sends it to the other ranks. InputError: a tensor is missing,
// unexpected or has a wrong shape, or the head differs from the embedding. UsageError: the weights differ from those of
// rank 0. Collective.
void load_parameters(Engine& engine, const std::filesystem::path& folder, Communicator& world, ThreadPool& pool);

// Reads the parameters from the folder of --model, or with --init random draws them from --seed. Collective.
void load_or_initialize(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool);

// Writes a model in --save-dtype as a Hugging Face folder that transformers can load. The folder appears complete or
// not at all. Copies generation_config.json from --model, and tokenizer_config.json, special_tokens_map.json and
// chat_template.jinja from the folder of the tokenizer, if they exist.
class ModelWriter {
 public:
  // `model` must outlive it. UsageError, RunError.
  ModelWriter(const Model& model, const std::filesystem::path& folder, const Tokenizer& tokenizer,
              const Settings& settings);
  // Writes elements `range` of a unit's flat parameters (host memory, any floating-point type). Each unit is
  // written once, complete or in consecutive pieces, so memory for one piece is enough. RunError, also if an element is
  // not finite in --save-dtype. An existing folder then stays unchanged.
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

// The text of tokenizer_config.json, for a tokenizer folder without this file.
std::string default_tokenizer_config(const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace tessera
