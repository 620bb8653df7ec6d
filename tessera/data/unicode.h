// The character classes of Hugging Face's `tokenizers`. Regular expressions always use Unicode 16, also if the
// installed Oniguruma has another version of Unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/data/unicode_tables.h"

namespace tessera {

// General categories. Cn (not assigned) is 0. The order is the order in tools/make_unicode_tables.py.
enum class Category : uint8_t {
  cn,
  lu,
  ll,
  lt,
  lm,
  lo,
  mn,
  mc,
  me,
  nd,
  nl,
  no,
  pc,
  pd,
  ps,
  pe,
  pi,
  pf,
  po,
  sm,
  sc,
  sk,
  so,
  zs,
  zl,
  zp,
  cc,
  cf,
  cs,
  co
};

// A set of categories: one bit per category.
using Categories = uint32_t;

constexpr Categories only(Category category) {
  return Categories{1} << static_cast<uint8_t>(category);
}
// Both bounds are included.
constexpr Categories from_to(Category first, Category last) {
  return (only(last) << 1) - only(first);
}
inline constexpr Categories kLetters = from_to(Category::lu, Category::lo);
inline constexpr Categories kMarks = from_to(Category::mn, Category::me);
inline constexpr Categories kNumbers = from_to(Category::nd, Category::no);

// The categories with this name in a regular expression: "L", "Letter", "Lu", "uppercase_letter", ... Upper and lower
// case are equal. Spaces, "_" and "-" are ignored. nullopt if no set of categories has the name.
std::optional<Categories> categories_of(std::string_view name);

// The category of every code point. [0x110000]
const std::vector<Category>& category_table();

// The code points of categories, of \w in regular expressions, and of the pre-tokenizer Digits. The ranges are
// ascending and not adjacent.
std::vector<CodeRange> ranges_of(Categories categories);
std::vector<CodeRange> ranges_of_word_characters();
std::vector<CodeRange> ranges_of_digits();
// All code points outside `ranges`, which must be ascending.
std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);

bool is_white_space(char32_t code);
// \w of Rust's regex crate, for the neighbours of added tokens: alphabetic, marks, decimal digits, connectors and the
// zero-width (non-)joiner.
bool is_word_character(char32_t code);
// Whether the normalizers of the library leave the code point as it is, because it is newer than their Unicode version
// (9). Also true for code points that are not assigned.
bool is_newly_normalized(char32_t code);

}  // namespace tessera
