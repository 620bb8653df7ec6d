// Lists of words, and their order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr double kMiB = 1 << 20;  // bytes

bool is_digit(char c);  // '0' to '9'

// The words between commas, without spaces around them: "a,b , c" gives a, b and c. Leaves out empty words.
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

// Whether `a` comes before `b`. Compares numbers in names by value, so "2_gpus" comes before "16_gpus".
bool natural_less(std::string_view a, std::string_view b);

}  // namespace tessera
