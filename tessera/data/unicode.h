// The character classes of Hugging Face's library `tokenizers`. Regular expressions in Tessera use these classes of
// Unicode 16, even if the installed Oniguruma has another version of Unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/data/unicode_tables.h"

namespace tessera {

// The general categories of Unicode. `cn` means not assigned. tools/make_unicode_tables.py uses the same order.
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
// The categories from `first` to `last`, both included.
constexpr Categories from_to(Category first, Category last) {
  return (only(last) << 1) - only(first);
}
inline constexpr Categories kLetters = from_to(Category::lu, Category::lo);
inline constexpr Categories kMarks = from_to(Category::mn, Category::me);
inline constexpr Categories kNumbers = from_to(Category::nd, Category::no);

// The categories with this name in a regular expression: "L", "Letter", "Lu", "uppercase_letter", ... Ignores the case
// of the name, and spaces, "_" and "-". Returns nullopt if no set of categories has the name.
std::optional<Categories> categories_of(std::string_view name);

// [0x110000] The category of every code point.
const std::vector<Category>& category_table();

// The code points of categories, of \w in regular expressions, and of the pre-tokenizer Digits. The ranges are
// ascending and not adjacent.
std::vector<CodeRange> ranges_of(Categories categories);
std::vector<CodeRange> ranges_of_word_characters();
std::vector<CodeRange> ranges_of_digits();
// All code points outside `ranges`, which must be ascending.
std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges);

bool is_white_space(char32_t code);
// Whether \w of Rust's regex crate matches the code point: alphabetic, mark, decimal digit, connector, zero-width
// joiner or zero-width non-joiner. Used for the characters before and after an added token.
bool is_word_character(char32_t code);
// True if newer versions of Unicode normalize the code point, but the normalizers of `tokenizers` (Unicode 9) do not.
// Also true for code points that are not assigned.
bool is_newly_normalized(char32_t code);

}  // namespace tessera
