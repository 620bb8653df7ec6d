// Exact match and F1 of an answer, as defined by SQuAD.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class Scoring {
  // The evaluation of SQuAD v2.0, which equals the evaluation of v1.1 if no text is empty. Converts to lower case,
  // removes ASCII punctuation, then the words a, an and the. Takes the best score over all references (the correct
  // answers). For F1, a repeated word counts min(m, n) times if it occurs m times in the prediction and n times in the
  // reference. References without words are ignored. If no reference remains, the question has no answer: the score is
  // 1 for a prediction without words, else 0.
  official,
  // As in the tables of a Python workshop (docs/workshop.md). The order of steps and the formula of F1 differ from
  // `official`. Converts to lower case, then removes the words a, an and the, then punctuation ("a-b" becomes "b", but
  // "a_b" becomes "ab"). Only the first reference counts. For F1, each common word counts once, even if it is repeated.
  // Precision still divides by the number of all words of the prediction, and recall by the number of all words of the
  // reference. Both numbers include repeated words.
  workshop,
};

// The words of a text that scoring compares, as UTF-8. Lower case, word boundaries and white space follow Python's
// str.lower, re and str.split on Unicode text. Each byte that is not UTF-8 counts as U+FFFD.
std::vector<std::string> normalized_words(std::string_view text, Scoring scoring = Scoring::official);

// 1 if the prediction has the same words in the same order as a reference, else 0. Scoring::workshop needs a reference.
double exact_match(std::string_view prediction, std::span<const std::string> references,
                   Scoring scoring = Scoring::official);

// The harmonic mean of precision and recall over words, in [0, 1]: the best value over the references. The value for a
// reference is 0 if no word is in both the reference and the prediction. Scoring::workshop needs a reference. If both
// texts are empty, Scoring::workshop gives 0.
double f1(std::string_view prediction, std::span<const std::string> references, Scoring scoring = Scoring::official);

// Whether an answer says that the question has no answer: it equals the text `no_answer`, or has the same words.
bool says_no_answer(std::string_view answer, std::string_view no_answer);

}  // namespace tessera
