#include "tessera/data/scoring.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"

namespace tessera {

namespace {

std::u32string decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t code_point;
    const size_t left = std::min<size_t>(text.size() - i, 4);
    const utf8proc_ssize_t length = utf8proc_iterate(bytes + i, static_cast<utf8proc_ssize_t>(left), &code_point);
    out.push_back(length > 0 ? static_cast<char32_t>(code_point) : U'\uFFFD');
    i += length > 0 ? static_cast<size_t>(length) : 1;
  }
  return out;
}

std::string encode(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  }
  return out;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Unicode's Cased: letters with a case, and signs based on them, such as Roman numerals, circled letters and ordinals.
bool is_cased(char32_t c) {
  const auto k = category(c);
  const auto code_point = static_cast<utf8proc_int32_t>(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || c == U'ª' ||
         c == U'º' || utf8proc_tolower(code_point) != code_point || utf8proc_toupper(code_point) != code_point;
}

// Unicode's Case_Ignorable: marks, format characters, modifiers, and punctuation within words.
bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWithinWords =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kWithinWords.find(c) != std::u32string_view::npos;
  }
}

// Whether the capital sigma at `i` ends a word: a cased character precedes it, and no cased character follows it.
// Skips case-ignorable characters on both sides of the sigma.
bool is_final_sigma(std::u32string_view text, size_t i) {
  size_t before = i, behind = i + 1;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return before > 0 && is_cased(text[before - 1]) && !(behind < text.size() && is_cased(text[behind]));
}

// Python's str.lower. Each character becomes one character, except İ, which becomes two. The result for Σ depends on
// its neighbours.
std::u32string lower(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == U'\u0130') {
      out += U"i\u0307";
    } else if (text[i] == U'\u03A3') {
      out.push_back(is_final_sigma(text, i) ? U'\u03C2' : U'\u03C3');
    } else {
      out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i]))));
    }
  }
  return out;
}

// Python's str.isspace.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0x2028 || c == 0x2029 ||
         (c > 0x7F && category(c) == UTF8PROC_CATEGORY_ZS);
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
  std::u32string plain = lower(decode(text));
  if (scoring == Scoring::workshop) plain = remove_articles(plain);
  std::erase_if(plain, is_punctuation);
  if (scoring == Scoring::official) plain = remove_articles(plain);

  std::vector<std::string> words;
  for (size_t i = 0; i < plain.size();) {
    size_t end = i;
    while (end < plain.size() && !is_space(plain[end])) ++end;
    if (end > i) words.push_back(encode(std::u32string_view(plain).substr(i, end - i)));
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
