// Exact match and F1 of an answer, as SQuAD counts them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class Scoring {
  // SQuAD v1.1's evaluation: lower-cased, ASCII punctuation removed, then the words a, an and the; the best score over
  // all references; F1 over the words with their multiplicity.
  official,
  // Another order and another F1, used by a Python workshop whose tables can so be repeated: lower-cased, the articles
  // removed first and punctuation after (so "a-b" becomes "b", but the "a" of "a_b" stays); only the first reference
  // counts; what is common to both are sets of words, while the lengths that precision and recall divide by count
  // repeated words.
  workshop,
};

// The words that count, as UTF-8. Lower case, word boundaries and white space are those of Python's str.lower, re and
// str.split on Unicode text; bytes that are no UTF-8 count as U+FFFD each.
std::vector<std::string> normalized_words(std::string_view text, Scoring scoring = Scoring::official);

// 1 where the words of prediction and reference are the same, else 0. At least one reference.
double exact_match(std::string_view prediction, std::span<const std::string> references,
                   Scoring scoring = Scoring::official);

// The harmonic mean of precision and recall over words, in [0, 1]; 0 where no word is common, also where both sides
// have no word at all. At least one reference.
double f1(std::string_view prediction, std::span<const std::string> references, Scoring scoring = Scoring::official);

}  // namespace tessera
