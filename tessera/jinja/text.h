// The methods of Python's str, on UTF-8. All texts are valid UTF-8; positions and lengths count code points. The scores
// of answers (data/scoring.h) need some of these methods, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

std::u32string decode(std::string_view text);  // a byte that belongs to no character becomes U+FFFD
std::string encode(std::u32string_view text);
bool is_valid_utf8(std::string_view text);
size_t code_points(std::string_view text);
// The size of the code point that begins at `at`.
size_t size_at(std::string_view text, size_t at);

enum class Sides { left = 1, right = 2, both = 3 };
std::string_view strip(std::string_view text, std::optional<std::string_view> characters, Sides sides);
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string title(std::string_view text);       // str.title
std::string capitalize(std::string_view text);  // str.capitalize
// str.is…: `name` is "isalpha", "isdigit", …
std::optional<bool> is_all(std::string_view name, std::string_view text);
// Both split at `separator`, or at white space without one, at most `most` times if it is not negative.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most);
std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t most);
size_t count(std::string_view text, std::string_view part);
std::string repr_text(std::string_view text);
std::string escape_html(std::string_view text);  // markupsafe.escape
bool is_space(char32_t code);

}  // namespace tessera::jinja
