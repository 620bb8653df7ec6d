// Model folders: reads configuration, tokenizer and parameters.
#pragma once

#include <filesystem>

#include "tessera/comm/world.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/model/generation_config.h"
#include "tessera/settings/resolve.h"
#include "tessera/store/read_ahead.h"

namespace tessera {

// The model folder that --model means. --model is this folder, its config.json, or the output folder of a run.
std::filesystem::path folder_of_model(const Settings& settings);

// Throws UsageError if training would replace its own initial model at the end. Example: --output-dir X with --model
// X/model.
void check_model_is_kept(const Settings& settings);

// The configuration for --model and --init. If --model is a file, reads this file. If it is a folder, reads the
// config.json of folder_of_model(). With --init random, --model may also be a known name ("bloom-560m"), or "gpt" with
// sizes from flags. Throws UsageError or InputError.
ModelConfig model_config_of(const Settings& settings);

// The tokenizer of --tokenizer or, without this flag, of the model folder. Settles the special tokens of `config`, and
// adds to config.notes (special_tokens.h). Throws InputError if the tokenizer does not exist, has ids beyond the
// model's vocabulary, or if the token that ends a text is unknown or wrong. Throws UsageError if --model is a known
// name, which has no tokenizer, and --tokenizer is not given, or if --eos-token is not a token.
Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config);

// The path of generation_config.json in the folder of --model. The file may be missing.
std::filesystem::path generation_config_path(const Settings& settings);
// Reads the file at generation_config_path(). If this file is missing, the result has no values. Throws InputError.
GenerationConfig generation_config_of(const Settings& settings, const ModelConfig& config);

// How to draw tokens, or nullopt to take the most likely ones. Settings that are not given come from `file`, the
// generation_config.json of the model. Throws InputError if a value that comes from `file` is wrong, and UsageError if
// its temperature is 0.
std::optional<Sampling> sampling_of(const ResolvedSettings& resolved, const GenerationConfig& file);

// Starts to read the weight files of --model into the page cache for load_or_initialize(). Only local rank 0 does this,
// and only if all ranks are on one node. On several nodes, each rank reads only its own part, without reading ahead.
// Never throws. Destroy the result when the weights are loaded.
ReadAhead read_weights_ahead(const Settings& settings, const World* world);

// Reads the tensors of a Hugging Face folder into the engine's parameters. Each rank reads the parts that it keeps.
// With sync_module_states, rank 0 reads everything and sends it to the other ranks. Throws InputError if a tensor is
// missing, is unexpected or has a wrong shape, or if a tied head differs from the embedding. Throws UsageError if ranks
// see different weights. Collective.
void load_parameters(Engine& engine, const std::filesystem::path& folder, Communicator& world, ThreadPool& pool);

// Reads the parameters from the folder of --model. With --init random, draws them with --seed instead. Collective.
void load_or_initialize(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool);

}  // namespace tessera
