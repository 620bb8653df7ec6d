#include "tessera/base/closest_word.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string closest_word(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 64;  // longer than the name of every setting; limits the time for hostile input
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const auto& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
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
