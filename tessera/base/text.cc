#include "tessera/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace tessera {
namespace {

// Decodes the character at text[0]. Sets `num_bytes` to its number of bytes. Invalid UTF-8 (a byte that starts no
// character, or an incomplete character) counts as U+FFFD.
char32_t decode(std::string_view text, size_t& num_bytes) {
  constexpr char32_t kReplacement = 0xFFFD;
  const auto first = static_cast<unsigned char>(text[0]);
  num_bytes = 1;
  if (first < 0x80) return first;
  if (first < 0xC0 || first >= 0xF8) return kReplacement;
  const size_t wanted = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t code = first & (0x7Fu >> wanted);
  for (; num_bytes < wanted; ++num_bytes) {
    const auto next = num_bytes < text.size() ? static_cast<unsigned char>(text[num_bytes]) : 0u;
    if ((next & 0xC0u) != 0x80u) return kReplacement;
    code = code << 6 | (next & 0x3Fu);
  }
  return code;
}

int width_of(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return first <= c && c <= last; };
  if (in(0x0300, 0x036F) || in(0x200B, 0x200F) || in(0x20D0, 0x20FF) || in(0xFE00, 0xFE0F)) return 0;
  const bool wide = in(0x1100, 0x115F) || in(0x2E80, 0x303E) || in(0x3041, 0xA4CF) || in(0xAC00, 0xD7A3) ||
                    in(0xF900, 0xFAFF) || in(0xFE30, 0xFE6F) || in(0xFF00, 0xFF60) || in(0xFFE0, 0xFFE6) ||
                    in(0x1F300, 0x1F64F) || in(0x1F680, 0x1F6FF) || in(0x1F900, 0x1F9FF) || in(0x20000, 0x3FFFD);
  return wide ? 2 : 1;
}

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = trimmed(text.substr(begin, end - begin), " ");
    if (!word.empty()) words.emplace_back(word);
    begin = end + 1;
  }
  return words;
}

bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto take = [](std::string_view text, size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = take(a, i), y = take(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
    }
  }
  if (i < a.size() || j < b.size()) return j < b.size();
  return a < b;  // the texts differ only in zeros before numbers
}

int display_width(std::string_view text) {
  int columns = 0;
  for (size_t num_bytes = 0; !text.empty(); text.remove_prefix(num_bytes)) columns += width_of(decode(text, num_bytes));
  return columns;
}

std::string_view cut_to_width(std::string_view text, int columns) {
  size_t end = 0;
  for (size_t num_bytes = 0; end < text.size(); end += num_bytes) {
    columns -= width_of(decode(text.substr(end), num_bytes));
    if (columns < 0) break;
  }
  return text.substr(0, end);
}

std::vector<std::string> wrapped(std::string_view text, int columns) {
  std::vector<std::string> lines;
  while (display_width(text) > columns) {
    const std::string_view most = cut_to_width(text, std::max(columns, 1));
    // The line may end before the space that follows it.
    size_t end = text[most.size()] == ' ' ? most.size() : most.rfind(' ');
    if (end == 0 || end == std::string_view::npos) {
      const size_t piece = most.find_last_of("/,=_-");
      end = piece == std::string_view::npos ? most.size() : piece + 1;
    }
    lines.emplace_back(text.substr(0, std::max<size_t>(end, 1)));
    text.remove_prefix(std::max<size_t>(end, 1));
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  lines.emplace_back(text);
  return lines;
}

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (std::abs(bytes) < 1024) return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; std::abs(amount) >= 1023.5; ++unit) amount /= 1024;  // 1023.5 would be printed as 1024
  return format_rate(amount) + " " + kUnits[unit];
}

std::string format_count(int64_t count) {
  const std::string digits = fmt::format("{}", count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > (count < 0 ? 1u : 0u);
    if (after_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string format_rate(double rate) {
  if (std::isnan(rate)) return "nan";
  const double size = std::abs(rate);
  if (size >= 99.95) return fmt::format("{:.0f}", rate);
  if (size >= 9.995) return fmt::format("{:.1f}", rate);
  if (size >= 0.9995 || size == 0) return fmt::format("{:.2f}", rate);
  return fmt::format("{:.3g}", rate);
}

std::string format_perplexity(double loss) {
  constexpr double kLargest = 700;  // exp(700) is about 1e304
  if (std::isnan(loss)) return "nan";
  if (loss > kLargest) return "over 1e304";
  const double perplexity = std::exp(loss);
  return perplexity < 9999.5 ? fmt::format("{:.{}f}", perplexity,
                                           perplexity < 9.995   ? 3
                                           : perplexity < 99.95 ? 2
                                                                : 1)
                             : fmt::format("{:.3g}", perplexity);
}

std::string format_clock(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "--:--";
  const auto total = std::llround(seconds);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::string quoted_for_shell(std::string_view argument) {
  constexpr std::string_view kPlain = "_-./:,=+@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  };
  if (!argument.empty() && std::ranges::all_of(argument, is_plain)) return std::string(argument);
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace tessera
