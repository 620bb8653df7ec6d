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

// Each entry describes a run of consecutive code points that have the same category. Its value is
// (first code point << 5) | Category. The entries are ascending.
extern const std::span<const uint32_t> kCategoryRuns;
// The ranges in the following tables are ascending.

// Code points that match Oniguruma's \w, except letters, letter numbers, marks, decimal digits and connectors.
extern const std::span<const CodeRange> kOtherWordCharacters;
// Code points that the pre-tokenizer Digits treats as digits, although their category is not Nd, Nl or No (numbers).
extern const std::span<const CodeRange> kOtherDigits;
// Assigned code points that the normalizers of Hugging Face's `tokenizers` do not know: these normalizers have no
// decomposition, composition or combining class for them.
extern const std::span<const CodeRange> kNewlyNormalized;

}  // namespace tessera
