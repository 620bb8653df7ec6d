// A tokenizer and its chat templates as keys of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokenizer.h"
#include "tessera/model/gguf.h"
#include "tessera/store/model_writer.h"

namespace tessera {

struct GgufTokenizer {
  GgufKeys keys;
  std::vector<std::string> notes;  // what llama.cpp does differently, in words for the user
};

// `files` are the files of the tokenizer that a Hugging Face folder of this model would have: the keys name the same
// special tokens and chat templates. llama.cpp knows the ways to divide a text into words by name only. Throws
// InputError if it has no name for the one of this tokenizer, because it would then give other ids. `where` names the
// tokenizer in errors.
GgufTokenizer gguf_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config, const std::vector<ModelFile>& files,
                             const std::string& where);

}  // namespace tessera
