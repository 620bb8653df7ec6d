// Which tokens begin, end and pad a text. All commands that use a tokenizer call settle_special_tokens(), so they
// agree.
//
// A sample ends with one end token, and a generated text ends at any of the end tokens. Sources of the end token, in
// this order:
//   1. --eos-token: the text of a token, or an id. A number is always an id
//   2. tokenizer_config.json: "eos_token", the text of the token
//   3. special_tokens_map.json: "eos_token"
//   4. config.json: the first id of "eos_token_id"
//   5. generation_config.json: the first id of "eos_token_id"
//   6. tokenizer.json: the last token that the post-processor puts after a text
//   7. a guess, which gives a note: the id of the shape, or 2, if it is a special token of the tokenizer
// Sources 1 to 5 name the end tokens of generated texts, all of them together.
//
// No command uses the ids of BOS, PAD and UNK: the post-processor of tokenizer.json puts BOS before a text, and samples
// are not padded. Saved files keep what the model's files say. For a model without a config.json, the saved config.json
// has the tokens that sources 2, 3 and, for BOS, 6 name.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/base/record.h"
#include "tessera/data/tokenizer.h"
#include "tessera/model/config.h"
#include "tessera/model/generation_config.h"

namespace tessera {

struct TokenSources {
  std::string eos_token;  // --eos-token; empty: not given
  std::filesystem::path tokenizer_json, config_json, generation_config;
};

// Sets config.eos_token_id and config.more_end_ids. For a model without a config.json, also sets the ids of the other
// special tokens. Adds notes to config.notes if a token is a guess, if the sources name different end tokens, and for
// each end token that is an ordinary token (Tokenizer::is_ordinary). Throws InputError if no source names an end token,
// or if the token is not in the vocabulary. Throws UsageError if the tokenizer does not have the token of --eos-token.
// An ordinary token is also an error if --eos-token names it and sources 2, 3 and 6 do not, or if its id in source 4 or
// 5 would end the samples.
void settle_special_tokens(ModelConfig& config, const TokenSources& sources, const Tokenizer& tokenizer,
                           const GenerationConfig& generation);

// The JSON object in tokenizer_config.json or special_tokens_map.json. Without keys if the file does not exist. Throws
// InputError if it is no JSON object.
Record tokenizer_record(const std::filesystem::path& file);
// The value of a token such as "eos_token" in this object: its text, in whichever of the two forms. Null if there is
// none.
Record named_token(const Record& record, const char* key);

// The text of a tokenizer_config.json or special_tokens_map.json to save, with `token` as "eos_token". Returns `text`
// itself if it names this token already.
std::string with_end_token(const std::string& text, const std::string& where, const std::string& token);

}  // namespace tessera
