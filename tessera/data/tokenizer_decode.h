// Converts tokens back to text.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/tokenizer_normalize.h"

namespace tessera {

// Converts between bytes and the symbols that represent them in tokens of a byte-level vocabulary.
class ByteSymbols {
 public:
  ByteSymbols();
  const std::string& symbol(uint8_t byte) const { return symbols_[byte]; }
  std::string symbols(std::string_view bytes) const;
  // The bytes of a token written in symbols. A token with any other character represents its own UTF-8 bytes.
  std::string bytes(const std::string& token) const;

 private:
  std::array<std::string, 256> symbols_;
  std::vector<int16_t> bytes_;  // by code point; −1 if it is not a symbol
};

struct DecoderStep {
  enum class Kind : uint8_t {
    byte_level,     // joins all tokens; their symbols become bytes
    replace,        // in every token
    byte_fallback,  // consecutive tokens "<0x41>" become bytes, or one U+FFFD each if they are not UTF-8
    fuse,           // joins all tokens
    strip,          // at most `start` and `stop` times `character` at the ends of every token
    metaspace,      // `character` becomes a space; in the first token it is dropped if `drops_first`
  };
  Kind kind;
  ReplaceRule replace{};
  std::string character{};
  size_t start = 0, stop = 0;
  bool drops_first = false;
};

class Decoder {
 public:
  explicit Decoder(const std::vector<DecoderStep>& steps);
  // Whether ByteLevel is the only step. Then the text is the concatenation of ByteSymbols::bytes.
  bool is_byte_level() const;
  // The text of valid UTF-8 tokens.
  std::string decode(std::vector<std::string> tokens) const;
  // Whether a token that is_part() does not accept never changes the text of the tokens before it, nor is changed by
  // those after it. Then the text only grows at such tokens.
  bool grows_by_token() const;
  // Whether the token is a byte whose text may depend on the next token.
  bool is_part(std::string token) const;
  // The bytes that a token stands for inside a text.
  std::string bytes_of(std::string token) const;

 private:
  struct Step {
    DecoderStep step;
    std::unique_ptr<const Replacer> replacer;
  };
  std::vector<Step> steps_;
  ByteSymbols byte_symbols_;
};

}  // namespace tessera
