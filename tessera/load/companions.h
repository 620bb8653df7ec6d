// The files of a saved model folder next to config.json, tokenizer.json and the weights.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokenizer.h"
#include "tessera/model/config.h"
#include "tessera/settings/settings.h"

namespace tessera {

struct Companion {
  std::string name;  // in the folder; may be in the subfolder kChatTemplates
  std::string text;
};

// Reads generation_config.json from the folder of --model, and the files of the tokenizer from its folder: other forms
// of its vocabulary, its special tokens, its chat templates. Makes tokenizer_config.json if the folder does not have
// it. Throws InputError.
std::vector<Companion> read_companions(const Settings& settings, const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace tessera
