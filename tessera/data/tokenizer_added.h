// Added tokens: fixed texts, such as "</s>", that become one token each. They are cut out of a text before the rest of
// the text is split into words.
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
  bool single_word = false;  // matches only if no word character is adjacent
  bool lstrip = false;       // a match includes the white space on its left
  bool rstrip = false;       // a match includes the white space on its right
  bool normalized = false;   // the normalized text is searched for the normalized form of the token
  bool special = false;      // decoding can skip it
};

// Finds added tokens in texts, from left to right. If several tokens match at the same position, takes the longest one.
class AddedTokenFinder {
 public:
  // A part of a text: one added token, or a piece that contains no added token (id −1).
  struct Part {
    size_t begin, end;  // offsets in bytes
    int32_t id;
  };

  // `form` is the text to find. It must not be empty. Returns false and adds nothing if another token has the same
  // form.
  bool add(std::string_view form, const AddedToken& token, int32_t id);
  // Appends the parts of `text` (valid UTF-8), as AddedVocabulary::find_matches of Hugging Face's tokenizers does.
  // Appends no part if `text` is empty.
  void find(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Pattern {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  // The longest pattern that starts at text[at], or nullptr. If a pattern is found, sets `end` to the offset after it.
  const Pattern* longest_at(std::string_view text, size_t at, size_t& end) const;

  std::vector<Pattern> patterns_;
  std::array<bool, 256> first_bytes_{};
  FlatMap edges_;                     // a trie with root 0: node << 8 | byte -> next node
  std::vector<int32_t> ends_ = {-1};  // node -> index of the pattern that ends there, or −1
};

}  // namespace tessera
