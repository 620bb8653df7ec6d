// Text: lists of words, its width on a screen, and the format of amounts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

bool is_digit(char c);  // '0' to '9'

// The text with its ASCII letters in lower case.
std::string lower(std::string_view text);

// The text without the characters `blanks` at its begin and end.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n\f\v");
inline bool is_blank(std::string_view text) {
  return trimmed(text).empty();
}

// The words of a comma-separated list, without spaces around them and without empty words: "a,b , c" gives a, b and c.
std::vector<std::string> split_list(std::string_view text);

template <typename Words>
std::string joined(const Words& words, std::string_view separator = ", ") {
  std::string text;
  for (auto it = words.begin(); it != words.end(); ++it) {
    if (it != words.begin()) text += separator;
    text += *it;
  }
  return text;
}

// Whether `a` comes before `b`. Compares numbers in names by value, so "2_gpus" comes before "16_gpus".
bool natural_less(std::string_view a, std::string_view b);

// The number of columns that UTF-8 text takes on a terminal. East Asian wide characters and emoji take two columns
// (Unicode Annex 11), and combining marks take none.
int display_width(std::string_view text);

// The longest prefix of the text that fits into `columns`.
std::string_view cut_to_width(std::string_view text, int columns);

// The text in lines of at most `columns`. A line ends at a space. A longer word ends after one of the characters /,=_-
// if possible, else anywhere.
std::vector<std::string> wrapped(std::string_view text, int columns);

std::string format_bytes(int64_t bytes);  // 512 B, 1.50 KiB, 14.2 GiB
std::string format_count(int64_t count);  // 559,214,592
// Three significant digits; from 100 on, a whole number: 0.0123, 7.32, 73.2, 12345.
std::string format_rate(double rate);
// exp(loss), for a loss in nats: "1.03", "26.5", "2.35e+05". A loss above 700 gives "over 1e304", because the result
// may not be a number of the computer. NaN gives "nan".
std::string format_perplexity(double loss);
std::string format_clock(double seconds);  // 0:07, 12:34, 1:02:03; negative, above 1e9 or not finite: --:--

// Returns text that a shell reads as exactly this argument: unchanged if possible, otherwise in single quotes.
std::string quoted_for_shell(std::string_view argument);

}  // namespace tessera
