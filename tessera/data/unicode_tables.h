// The tables that tools/make_unicode_tables.py generates. unicode.h says what they mean.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// Code points [first, last].
struct CodeRange {
  char32_t first, last;
  bool operator==(const CodeRange&) const = default;
};

// Where the category changes, ascending: first code point << 5 | Category.
extern const std::span<const uint32_t> kCategoryRuns;
// The following ranges are ascending.
// \w of Oniguruma without letters, letter numbers, marks, decimal digits and connectors.
extern const std::span<const CodeRange> kOtherWordCharacters;
// Code points that the pre-tokenizer Digits treats as digits, although their category is not a number.
extern const std::span<const CodeRange> kOtherDigits;
// Assigned code points that the normalizers do not know: they have no decomposition, composition or combining class.
extern const std::span<const CodeRange> kNewlyNormalized;

}  // namespace tessera
