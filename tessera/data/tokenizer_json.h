// The content of a tokenizer.json. Tessera can run BPE tokenizers, either byte-level or of SentencePiece's style.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/data/tokenizer_added.h"
#include "tessera/data/tokenizer_decode.h"
#include "tessera/data/tokenizer_normalize.h"
#include "tessera/data/tokenizer_split.h"

namespace tessera {

// Before which pieces of a text the pre-tokenizer Metaspace puts its character. A piece that already begins with this
// character or with a space gets none.
enum class MetaspacePrefix : uint8_t { always, first, never };  // first: only the piece at the beginning of the text

// One step of the pre-tokenizer. The pre-tokenizer ByteLevel becomes 0, 1 or 2 steps. Its mapping of bytes to symbols
// is not a step: TokenizerJson::byte_level says whether the file has this mapping.
struct SplitStep {
  enum class Kind : uint8_t {
    split,         // splits pieces at the matches of `pattern`
    prefix_space,  // puts a space before every piece that does not start with one
    metaspace,     // replaces spaces with `metaspace` and puts it before pieces, as `prefix` says
  };
  Kind kind = Kind::split;
  std::string pattern{};  // an Oniguruma regular expression
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
  std::string metaspace{};  // one character
  MetaspacePrefix prefix = MetaspacePrefix::always;
  std::string where{};  // file and key, for errors
};

// The ids that a post-processor puts before and after a text.
struct SpecialFrame {
  std::vector<int32_t> before, after;
  std::string where;  // file and key, for errors
};

struct TokenizerJson {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> steps;
  bool byte_level = false;  // BPE merges bytes (pre-tokenizer ByteLevel), not characters
  std::vector<DecoderStep> decoder;
  SpecialFrame frame;
  std::vector<AddedToken> added_tokens;                     // in the file's order; the vocabulary decides their ids
  std::vector<std::pair<std::string, int32_t>> vocabulary;  // distinct tokens with distinct ids
  std::vector<std::pair<std::string, std::string>> merges;  // the rank of a merge is its index
  std::string merges_where;
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::vector<std::string> unused;  // keys of the file that Tessera ignores: "truncation", "padding"
};

// Reads the text of a tokenizer.json. `where` names the file in errors. Throws InputError if the text is not JSON, is
// incomplete, contradicts itself, or contains a tokenizer of another kind. The error names the faulty key.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

// The token as messages show it: in quotes, escaped and shortened.
std::string quoted_token(std::string_view token);

struct TokenizerNode;
// Reads the parts "normalizer", "pre_tokenizer", "decoder" and "post_processor" of the file's object into `result`.
void read_tokenizer_steps(const TokenizerNode& root, TokenizerJson& result);

}  // namespace tessera
