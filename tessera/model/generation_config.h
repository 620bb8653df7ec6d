// The generation_config.json of a Hugging Face folder: which tokens end a text, and how transformers samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

struct GenerationConfig {
  std::vector<int32_t> end_ids;  // tokens that end a generated text
  bool do_sample = false;
  std::optional<double> temperature, top_p;  // temperature: at least 0; top_p: in [0, 1]
  std::optional<int64_t> top_k;              // 0: all tokens
  // What is wrong with a value that is not kept: {key, text}. It is an error only for a command that uses the value.
  std::vector<std::pair<std::string, std::string>> faults;
  // Keys that change what transformers generates and that Tessera does not use. If the value of a key is a number, the
  // number follows the key: "repetition_penalty 1.05".
  std::vector<std::string> unused;
  std::vector<std::string> notes;  // token ids of the file that are ignored, because the vocabulary does not have them
};

// `where` names the file in errors and notes. Throws InputError if the text is not a JSON object. A value that has a
// wrong type or is out of range adds to `faults` or `notes`. Unknown keys are ignored.
GenerationConfig parse_generation_config(std::string_view text, const std::string& where, int64_t vocab_size);

// The text of the generation_config.json to save with a model whose texts end with `end_id`: `text` with this id among
// the ids of "eos_token_id", because transformers ends a text only at these ids. Returns `text` itself if it has the
// id.
std::string generation_config_to_save(const std::string& text, const std::string& where, int32_t end_id);

}  // namespace tessera
