// The tables that tools/make_unicode_tables.py generates. unicode.h has functions that read them.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// Code points [first, last].
struct CodeRange {
  char32_t first, last;
  bool operator==(const CodeRange&) const = default;
};

// Runs of code points with one category, ascending: first code point << 5 | Category.
extern const std::span<const uint32_t> kCategoryRuns;
// The ranges in the following tables are ascending.

// Oniguruma's \w, except letters, letter numbers, marks, decimal digits and connectors.
extern const std::span<const CodeRange> kOtherWordCharacters;
// Code points that the pre-tokenizer Digits treats as digits, although their category is not a number.
extern const std::span<const CodeRange> kOtherDigits;
// Assigned code points that the library's normalizers do not know: for these, the normalizers have no decomposition,
// composition or combining class.
extern const std::span<const CodeRange> kNewlyNormalized;

}  // namespace tessera
