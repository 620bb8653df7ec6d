// The content of a tokenizer.json, for tokenizers that Tessera can run: byte-level BPE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/data/tokenizer_added.h"
#include "tessera/data/tokenizer_split.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {

// One splitting step of the pre-tokenizer. ByteLevel becomes up to two steps; its mapping of bytes to symbols is
// implied.
struct SplitStep {
  bool add_prefix_space =
      false;  // puts a space before every piece that does not start with one; the other fields are then unused
  std::string pattern;  // an Oniguruma regular expression
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
  std::string where;  // file and key, for errors
};

struct TokenizerJson {
  std::vector<NormalForm> normal_forms;
  std::vector<SplitStep> steps;
  std::vector<AddedToken> added_tokens;                     // in the file's order; ids follow from the vocabulary
  std::vector<std::pair<std::string, int32_t>> vocabulary;  // tokens in symbols and their ids, all different
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::string merges_where;
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::vector<std::string> unused;  // keys with a value that Tessera does not use: "truncation", "padding"
};

// Reads the text of a tokenizer.json. `where` names it in errors. InputError with the faulty key if it is not JSON, is
// incomplete, contradicts itself, or contains a tokenizer of another kind.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

// "\"token\"" for messages: quoted, escaped, shortened.
std::string quoted_token(std::string_view token);

}  // namespace tessera
