// Added tokens: those cut out of a text before it is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/bpe.h"

namespace tessera {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // takes the white space on its right
  bool normalized = false;   // found in the normalised text, in its own normalised form
  bool special = false;      // can be left out when decoding
};

// Finds a set of added tokens, the leftmost first and of these the longest.
class AddedTokenFinder {
 public:
  // A part of a text: one added token, or what lies between (id −1).
  struct Part {
    size_t begin, end;  // bytes
    int32_t id;
  };

  // `form` is the text to look for; forms must differ, else false is returned and the token is not added.
  bool add(std::string_view form, const AddedToken& token, int32_t id);
  // Appends the parts of `text` (valid UTF-8), as tokenizers' AddedVocabulary::find_matches does; none if it is empty.
  void find(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Pattern {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  // The longest pattern that begins at text[at], or null; `end` is where it ends.
  const Pattern* longest_at(std::string_view text, size_t at, size_t& end) const;

  std::vector<Pattern> patterns_;
  std::array<bool, 256> first_bytes_{};
  FlatMap edges_;                     // node << 8 | byte -> node, of a trie whose root is 0
  std::vector<int32_t> ends_ = {-1};  // node -> index of the pattern that ends there, or −1
};

}  // namespace tessera
