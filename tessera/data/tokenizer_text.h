// UTF-8 functions for tokenizers: repair, stepping through valid text, normal forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

bool is_utf8(std::string_view bytes);

// Appends `bytes` to `out`. Replaces every maximal invalid subpart with U+FFFD (Unicode 15, section 3.9, "U+FFFD
// substitution of maximal subparts"). Python's bytes.decode("utf-8", "replace") and Rust's String::from_utf8_lossy give
// the same text.
void append_repaired_utf8(std::string& out, std::string_view bytes);

// Moves `bytes` to the end of `out`, and repairs them as append_repaired_utf8() does. If the last bytes may be the
// beginning of a character, they stay in `bytes`, because later bytes may complete this character.
void move_repaired_utf8(std::string& out, std::string& bytes);

void append_code_point(std::string& out, char32_t code);

struct CodePoint {
  char32_t code;
  uint32_t num_bytes;
};

// The code point that starts at text[at]. The text must be valid UTF-8, and a character must start at `at`.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The code point that ends before text[end]. `end` must be positive and at a character boundary.
CodePoint code_point_before(std::string_view text, size_t end);

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

// Converts valid UTF-8 to a normal form of Unicode 9, the version of Hugging Face's `tokenizers`. Characters that only
// later versions of Unicode contain stay unchanged.
std::string normalize(std::string_view text, NormalForm form);

}  // namespace tessera
