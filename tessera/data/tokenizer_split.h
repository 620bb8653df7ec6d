// Splits a text into words. Byte pair encoding never merges bytes of different words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A part of a text: bytes [begin, end).
struct Span {
  size_t begin, end;
  bool operator==(const Span&) const = default;
};

// Finds the non-overlapping matches of a pattern from left to right, as the onig crate's find_iter does. Thread-safe.
class Matcher {
 public:
  virtual ~Matcher() = default;
  // Appends the matches in `text` (valid UTF-8). A match may be empty. Throws InputError if the pattern needs too
  // many steps.
  virtual void find(std::string_view text, std::vector<Span>& matches) const = 0;
};

// The pre-tokenizer patterns of BLOOM and GPT-2. Hugging Face's ByteLevel with use_regex also uses GPT-2's pattern.
inline constexpr const char* kBloomPattern = " ?[^(\\s|[.,!?…。，、।۔،])]+";
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// make_regex_matcher() uses Oniguruma for every pattern. make_matcher() has its own code for the two patterns above.
// This code is several times faster, and gives the same matches. Both functions throw InputError if the pattern is too
// long, or if Oniguruma rejects it. These errors, and the errors of find(), begin with `where` (file and key).
// Character classes follow unicode.h.
std::unique_ptr<const Matcher> make_regex_matcher(const std::string& pattern, const std::string& where);
std::unique_ptr<const Matcher> make_matcher(const std::string& pattern, const std::string& where);

// What to do with the matches (the delimiters), as in Hugging Face's SplitDelimiterBehavior.
enum class SplitBehavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class Splitter {
 public:
  // invert: the text between the matches is the delimiter.
  Splitter(std::unique_ptr<const Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}

  // Appends the non-empty pieces of text[piece] to `pieces`, as spans of `text`. `matches` is working memory.
  void split(std::string_view text, Span piece, std::vector<Span>& matches, std::vector<Span>& pieces) const;

 private:
  std::unique_ptr<const Matcher> matcher_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace tessera
