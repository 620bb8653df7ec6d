// The generation_config.json of a Hugging Face folder: which tokens end a text, and how transformers samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct GenerationConfig {
  std::vector<int32_t> end_ids;  // tokens that end a generated text
  bool do_sample = false;
  std::optional<double> temperature, top_p;  // temperature: at least 0; top_p: in [0, 1]
  std::optional<int64_t> top_k;              // 0: all tokens
  // Keys that change what transformers generates and that Tessera does not use. If the value of a key is a number, the
  // number follows the key: "repetition_penalty 1.05".
  std::vector<std::string> unused;
};

// `where` names the file in errors. Throws InputError if the text is not a JSON object, or if a value that Tessera
// reads has a wrong type or is out of range. The error for a value names its key. Unknown keys are ignored.
GenerationConfig parse_generation_config(std::string_view text, const std::string& where, int64_t vocab_size);

}  // namespace tessera
