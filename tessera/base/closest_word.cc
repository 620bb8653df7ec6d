#include "tessera/base/closest_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "tessera/base/text.h"

namespace tessera {

// Optimal string alignment distance. The table has one row for each prefix of a, and one column for each prefix of b.
// Only three rows are kept: the current row, the previous row (`last`), and for swaps the row before `last`.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before_last, last(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = last[j - 1] + (a[i - 1] != b[j - 1]);
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = current;
  }
  return last[b.size()];
}

namespace {

// The words of a name, in lower case. Bytes that are not ASCII are letters.
std::vector<std::string> words_in(std::string_view name) {
  std::vector<std::string> words;
  bool is_inside = false;
  for (const char c : name) {
    const char low = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool belongs = (low >= 'a' && low <= 'z') || is_digit(low) || static_cast<unsigned char>(low) >= 0x80;
    if (belongs && !is_inside) words.emplace_back();
    if (belongs) words.back() += low;
    is_inside = belongs;
  }
  return words;
}

std::string joined_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

std::string digits_of(const std::string& text) {
  std::string digits;
  std::ranges::copy_if(text, std::back_inserter(digits), is_digit);
  return digits;
}

int letters_of(const std::string& word) {
  return static_cast<int>(word.size());
}

int cost_of_replacing(const std::string& a, const std::string& b) {
  constexpr int kShortest = 3;  // of an abbreviation
  const int all = letters_of(a) + letters_of(b), shorter = std::min(letters_of(a), letters_of(b));
  const bool is_near = all - 2 * shorter <= shorter / 4;  // the difference of the lengths, which is faster to compute
  const int edits = is_near ? edit_distance(a, b) : all;
  if (edits <= shorter / 4 || (edits == 2 && std::ranges::is_permutation(a, b))) return edits;
  const bool is_short_form = shorter >= kShortest && (a.starts_with(b) || b.starts_with(a));
  return is_short_form ? 1 : all;
}

}  // namespace

int name_distance(std::string_view a, std::string_view b) {
  const std::vector<std::string> from = words_in(a), to = words_in(b);
  const std::string all_from = joined_words(from), all_to = joined_words(to);
  if (digits_of(all_from) != digits_of(all_to)) return kDifferent;
  if (std::abs(letters_of(all_from) - letters_of(all_to)) <= 1) {
    if (const int edits = edit_distance(all_from, all_to); edits <= 1) return edits;
  }
  // The edit distance of two lists of words.
  std::vector<int> last(to.size() + 1), current(to.size() + 1);
  for (size_t j = 1; j <= to.size(); ++j) last[j] = last[j - 1] + letters_of(to[j - 1]);
  for (const std::string& word : from) {
    current[0] = last[0] + letters_of(word);
    for (size_t j = 1; j <= to.size(); ++j) {
      current[j] = std::min({last[j] + letters_of(word), current[j - 1] + letters_of(to[j - 1]),
                             last[j - 1] + cost_of_replacing(word, to[j - 1])});
    }
    last = current;
  }
  return last[to.size()];
}

std::string closest_word(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 64;  // longer than the name of every setting; limits the time for hostile input
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string best;
  int best_distance = letters_of(joined_words(words_in(word))) / 3 + 1;
  for (const auto& candidate : candidates) {
    const int distance = name_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (!best.empty() || word.size() < 3) return best;
  for (const auto& candidate : candidates) {
    if (candidate.starts_with(word)) return candidate;
  }
  return "";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string closest = closest_word(word, candidates);
  return closest.empty() ? "" : fmt::format("Did you mean \"{}\"?", closest);
}

}  // namespace tessera
