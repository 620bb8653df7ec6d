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
  // The bytes that the symbols of a token represent. If a character of the token is not a symbol, returns the token.
  std::string bytes(const std::string& token) const;

 private:
  std::array<std::string, 256> symbols_;
  std::vector<int16_t> bytes_;  // by code point; −1: the code point is not a symbol
};

struct DecoderStep {
  enum class Kind : uint8_t {
    byte_level,     // joins all tokens, and converts their symbols to bytes
    replace,        // replaces the matches of a pattern in every token
    byte_fallback,  // joins the bytes of consecutive tokens like "<0x41>"; if not UTF-8, each byte becomes U+FFFD
    fuse,           // joins all tokens
    strip,          // removes `character` from every token: up to `start` times at its start, up to `stop` at its end
    metaspace,      // replaces `character` with a space; if `drops_first`, removes it from the first token instead
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
  // Whether byte_level is the only step. decode() then joins the ByteSymbols::bytes() of all tokens, and repairs the
  // result if it is not UTF-8.
  bool is_byte_level() const;
  // The text of the tokens. The tokens must be valid UTF-8.
  std::string decode(std::vector<std::string> tokens) const;
  // Whether later tokens only append to the text of earlier tokens. Exception: while is_part() is true for the last
  // token, the next tokens can still change the end of the text.
  bool grows_by_token() const;
  // Whether the token is a fallback byte ("<0x41>"), whose text may depend on the next tokens.
  bool is_part(std::string token) const;
  // The bytes that a token adds to a text, if it is not the first token of the text.
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
