// Model folders: reads the configuration and the tokenizer.
#pragma once

#include <filesystem>

#include "tessera/data/prompts.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/model/generation_config.h"
#include "tessera/settings/resolve.h"

namespace tessera {

// The configuration for --model and --init. If --model is a file, reads this file. If it is a folder, reads the
// config.json of folder_of_model(). With --init random, --model may also be a known name ("bloom-560m"), or "gpt" with
// sizes from flags. With --resize-embeddings, the vocabulary has at least the size of the tokenizer. Throws UsageError
// or InputError.
ModelConfig model_config_of(const Settings& settings);

// Throws UsageError if training could not change the model: its weights are in 4 bits, and it has no adapter.
void check_trains(const ModelConfig& config, const Settings& settings);

// The tokenizer of --tokenizer or, without this flag, of the model folder. Settles the special tokens of `config`, and
// adds to config.notes (special_tokens.h). Throws InputError if the tokenizer does not exist, has ids of ordinary
// tokens beyond the model's vocabulary, or if the token that ends a text is unknown, wrong or beyond the vocabulary.
// Added tokens may be beyond the vocabulary (encoder_of()). Throws UsageError if --model is a known name, which has no
// tokenizer, and --tokenizer is not given, or if --eos-token is not a token.
Tokenizer tokenizer_of(const Settings& settings, ModelConfig& config);

// Encodes a text for a model. Throws InputError if the text has a token that has no row in the model's embedding. The
// tokenizer must outlive the result.
EncodeFn encoder_of(const Tokenizer& tokenizer, const ModelConfig& config);

// The path of generation_config.json in the folder of --model. The file may be missing.
std::filesystem::path generation_config_path(const Settings& settings);
// Reads the file at generation_config_path(). If this file is missing, the result has no values. Throws InputError.
GenerationConfig generation_config_of(const Settings& settings, const ModelConfig& config);

// How to draw tokens, or nullopt to take the most likely ones. Settings that are not given come from `file`, the
// generation_config.json of the model. Throws InputError if a value that comes from `file` is wrong, and UsageError if
// its temperature is 0.
std::optional<Sampling> sampling_of(const ResolvedSettings& resolved, const GenerationConfig& file);

}  // namespace tessera
