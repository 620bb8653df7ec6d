// Words in messages: "Did you mean …?" and lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Edits (insertion, deletion, substitution, swap of neighbours) that lead from one word to the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate that is closest to `word`, if it is close enough to be meant: at most a third of the letters differ, or
// the word is how the candidate begins. Empty when there is none.
std::string closest_word(std::string_view word, const std::vector<std::string>& candidates);

// `Did you mean "x"?`, or an empty text.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// The words with the separator between them.
std::string joined(const std::vector<std::string>& words, std::string_view separator);

}  // namespace tessera
