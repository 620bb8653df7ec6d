// Finds the word that a misspelt word probably means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The number of edits between two words. An edit inserts, deletes or replaces a letter, or swaps two
// neighbouring letters.
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the fewest edits from `word`. The number of edits must be at most a third of the number of letters
// in `word`, but one edit is always allowed. If no candidate is close enough and `word` has at least 3 letters, returns
// the first candidate that begins with `word`. Returns an empty text if no candidate fits, or if `word` has more than
// 64 letters.
std::string closest_word(std::string_view word, const std::vector<std::string>& candidates);

// `Did you mean "x"?` with the result of closest_word(). Empty if this result is empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera
