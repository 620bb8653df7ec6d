// Lists of words, and their order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr double kMiB = 1 << 20;  // bytes

bool is_digit(char c);  // '0' to '9'

// "a,b , c" as a list; no empty words.
std::vector<std::string> split_list(const std::string& text);

template <typename Words>
std::string join_words(const Words& words, std::string_view separator = ", ") {
  std::string text;
  for (auto it = words.begin(); it != words.end(); ++it) {
    if (it != words.begin()) text += separator;
    text += *it;
  }
  return text;
}

// Order of names with numbers: "2_gpus" before "16_gpus".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace tessera
