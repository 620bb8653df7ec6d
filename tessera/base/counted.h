// Numbers with their nouns, and lists of words, for messages.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// "sample" for 1, "samples" for all other counts.
template <std::integral Count>
std::string noun_for(Count count, std::string_view noun) {
  return std::string(noun) + (count == 1 ? "" : "s");
}

// "1 sample", "22 samples".
template <std::integral Count>
std::string counted(Count count, std::string_view noun) {
  return std::to_string(count) + " " + noun_for(count, noun);
}

// "a", "a and b", "a, b and c".
inline std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  }
  return text;
}

}  // namespace tessera
