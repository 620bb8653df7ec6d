// The state of a Tokenizer. tokenizer_build.cc builds it from a file. tokenizer.cc encodes and decodes with it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/data/bpe.h"
#include "tessera/data/tokenizer.h"
#include "tessera/data/tokenizer_decode.h"
#include "tessera/data/tokenizer_json.h"

namespace tessera {

inline constexpr size_t kLongestText = (1u << 30) - 1;    // bytes
inline constexpr size_t kLongestWord = (1ull << 31) - 1;  // bytes; the limit of Bpe::encode()

struct TokenizerStep {
  SplitStep::Kind kind;
  std::optional<Splitter> splitter;  // for split
  std::string metaspace;             // for metaspace
  MetaspacePrefix prefix;            // for metaspace
};

// Added tokens divide a text into pieces. This is the place of such a piece.
enum class PiecePlace : uint8_t {
  beginning,   // at the beginning of the complete text
  continuing,  // at the beginning of a text that continues another text
  elsewhere,
};

inline constexpr std::string_view kMetaspace = "\u2581";

// Working memory of one call of encode(). The tokenizer keeps it after the call, so that a later call can use its word
// cache.
struct TokenizerScratch {
  WordCache cache;
  Bpe::Scratch bpe;
  std::vector<AddedTokenFinder::Part> parts, inner_parts;
  std::vector<Span> pieces, next_pieces, matches;
  std::string rewritten, next_rewritten;  // the text after steps that change it
};

// The TokenizerScratch objects that no thread uses now. The mutex of this pool is the only lock that encoding threads
// take.
class ScratchPool {
 public:
  std::unique_ptr<TokenizerScratch> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<TokenizerScratch>();
  }
  void give_back(std::unique_ptr<TokenizerScratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<TokenizerScratch>> free_;
};

struct Tokenizer::State {
  const std::string json_text;
  const std::vector<std::string> unused_keys;
  const Normalizer normalizer;
  const Decoder decoder;
  const SpecialFrame frame;
  const bool byte_level;
  const ByteSymbols byte_symbols;
  std::vector<TokenizerStep> steps;
  std::unordered_map<std::string, int32_t> vocabulary, added;  // token -> id
  AddedTokenFinder raw_added, normalized_added;
  std::vector<std::string> tokens;  // id -> the token, or its bytes if the decoder is ByteLevel
  std::vector<bool> present;        // id -> whether a token has this id
  std::vector<bool> special;        // id -> whether skip_special omits it
  std::optional<Bpe> bpe;           // set by the constructor
  const bool ignore_merges;         // true: a word in the vocabulary is one token, even if merges give several tokens
  bool cuts_at_metaspace = false;   // words may be cut before a "▁" that does not directly follow another "▁"
  mutable ScratchPool scratches;

  State(const TokenizerJson& json, std::string_view text, const std::string& where);
  void set_token(int32_t id, const std::string& token);
  void add_tokens(const std::vector<AddedToken>& list, const std::string& where);
  BpeAlphabet make_alphabet(const TokenizerJson& json, const std::string& where) const;
  std::vector<BpeMerge> make_merges(const TokenizerJson& json) const;
  int32_t id_or_none(const std::string& token) const;
  void check_frame() const;
  // Whether a decoded text omits this id. Also true if no token has this id.
  bool omits(int32_t id, bool skip_special) const {
    const auto index = static_cast<size_t>(id);
    return id < 0 || index >= tokens.size() || !present[index] || (skip_special && special[index]);
  }

  void encode(std::string_view text, bool inside, TokenizerScratch& scratch, std::vector<int32_t>& ids) const;
  void encode_plain(std::string_view text, PiecePlace place, TokenizerScratch& scratch,
                    std::vector<int32_t>& ids) const;
  std::string_view rewrite(const TokenizerStep& step, std::string_view text, PiecePlace place,
                           TokenizerScratch& scratch) const;
  void encode_word(std::string_view word, TokenizerScratch& scratch, std::vector<int32_t>& ids) const;
};

}  // namespace tessera
