// Finds the word that a misspelt word probably means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The number of edits between two words. An edit inserts, deletes or replaces a letter, or swaps two
// neighbouring letters.
int edit_distance(std::string_view a, std::string_view b);

// The number of edits between two names that consist of words, such as "--batch-size" and "batch_sise". Case and the
// characters between words do not count. One edit is always a typing error. More edits are typing errors only within
// words: at most one for every four letters of a word, or two that change only the order of letters. A word and its
// short form, such as "epsilon" and "eps", differ by one edit. A word that is left out or added counts with all its
// letters, and a word that is replaced by another word counts as both. Returns kDifferent if the names have different
// digits: they are then the names of different things, such as "fp16" and "fp32".
inline constexpr int kDifferent = 1 << 20;
int name_distance(std::string_view a, std::string_view b);

// The candidate with the smallest name_distance() from `word`. The distance must be at most a third of the number of
// letters and digits in `word`, and is 0 if there are fewer than 3. If no candidate is close enough and `word` has at
// least 3 letters, returns the first candidate that begins with `word`. Returns an empty text if no candidate fits, or
// if `word` has more than 64 letters.
std::string closest_word(std::string_view word, const std::vector<std::string>& candidates);

// `Did you mean "x"?` with the result of closest_word(). Empty if this result is empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera
