#include "tessera/data/scoring.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/jinja/text.h"

namespace tessera {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Python's \w: letters, numbers and the underscore. Marks are not part of a word.
bool is_word(char32_t c) {
  if (c == U'_') return true;
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
         (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

// Python's string.punctuation: the printable ASCII characters except letters, digits and the space.
bool is_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

// Replaces each match of the regular expression \b(a|an|the)\b with a space. A match is always a complete run of word
// characters.
std::u32string remove_articles(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::u32string_view run = text.substr(i, end - i);
    if (run == U"a" || run == U"an" || run == U"the") {
      out.push_back(U' ');
    } else {
      out += run;
    }
    if (end < text.size()) out.push_back(text[end]);
    i = end + 1;
  }
  return out;
}

double word_f1(std::span<const std::string> prediction, std::span<const std::string> reference, Scoring scoring) {
  std::map<std::string_view, int64_t> unmatched;
  for (const std::string& word : reference) ++unmatched[word];
  int64_t common = 0;
  for (const std::string& word : prediction) {
    const auto found = unmatched.find(word);
    if (found == unmatched.end() || found->second == 0) continue;
    ++common;
    // For Scoring::workshop, a common word counts once, even if it is repeated.
    found->second = scoring == Scoring::workshop ? 0 : found->second - 1;
  }
  if (common == 0) return 0.0;
  const double precision = static_cast<double>(common) / static_cast<double>(prediction.size());
  const double recall = static_cast<double>(common) / static_cast<double>(reference.size());
  return 2 * precision * recall / (precision + recall);
}

// The score of a prediction. `score` compares the words of the prediction with the words of one reference.
template <typename Score>
double best(std::string_view prediction, std::span<const std::string> references, Scoring scoring, Score score) {
  const auto predicted = normalized_words(prediction, scoring);
  if (scoring == Scoring::workshop) {
    TESSERA_ASSERT(!references.empty());
    return score(predicted, normalized_words(references.front(), scoring));
  }
  bool has_answer = false;
  double best = 0.0;
  for (const std::string& reference : references) {
    const auto words = normalized_words(reference, scoring);
    if (words.empty()) continue;
    has_answer = true;
    best = std::max(best, score(predicted, words));
  }
  return has_answer ? best : predicted.empty() ? 1.0 : 0.0;
}

}  // namespace

std::vector<std::string> normalized_words(std::string_view text, Scoring scoring) {
  std::u32string plain = jinja::decode(jinja::lower(text));
  if (scoring == Scoring::workshop) plain = remove_articles(plain);
  std::erase_if(plain, is_punctuation);
  if (scoring == Scoring::official) plain = remove_articles(plain);

  std::vector<std::string> words;
  for (size_t i = 0; i < plain.size();) {
    size_t end = i;
    while (end < plain.size() && !jinja::is_space(plain[end])) ++end;
    if (end > i) words.push_back(jinja::encode(std::u32string_view(plain).substr(i, end - i)));
    i = end + 1;
  }
  return words;
}

double exact_match(std::string_view prediction, std::span<const std::string> references, Scoring scoring) {
  return best(prediction, references, scoring, [](const auto& p, const auto& r) { return p == r ? 1.0 : 0.0; });
}

double f1(std::string_view prediction, std::span<const std::string> references, Scoring scoring) {
  return best(prediction, references, scoring, [&](const auto& p, const auto& r) { return word_f1(p, r, scoring); });
}

bool says_no_answer(std::string_view answer, std::string_view no_answer) {
  if (answer == no_answer) return true;
  const auto words = normalized_words(no_answer);
  return !words.empty() && normalized_words(answer) == words;
}

}  // namespace tessera
