// What --model and --tokenizer name, and where its files are.
//
// --model is a model folder, its config.json, the output folder of a run, a checkpoint of a run, a model in the cache
// of the Hugging Face hub (its name or its folder), or the name of a shape (model/architecture.h).
#pragma once

#include <filesystem>

#include "tessera/settings/settings.h"

namespace tessera {

// The folder that --model means: it has the config.json, and the weights or a checkpoint. If nothing exists there,
// returns --model. Throws InputError if a folder of the hub's cache is incomplete or ambiguous.
std::filesystem::path folder_of_model(const Settings& settings);
// The config.json that --model means.
std::filesystem::path config_file_of(const Settings& settings);
// Whether --model is the name of a shape ("bloom-560m", "gpt"), which has no files.
bool names_a_shape(const Settings& settings);
// Throws InputError if --model is neither a shape nor a model that Tessera reads. The error names the form of the model
// and the remedy.
void check_place_of_model(const Settings& settings);

// The tokenizer.json of --tokenizer or, without this flag, of the model. Throws UsageError if --model is a shape, which
// has no tokenizer. Throws InputError if the model or the folder of --tokenizer has no tokenizer.json.
std::filesystem::path tokenizer_file_of(const Settings& settings);

// Throws UsageError if training would replace its own initial model at the end. Example: --output-dir X with --model
// X/model. The same for a checkpoint in X.
void check_model_is_kept(const Settings& settings);

}  // namespace tessera
