#include "tessera/data/unicode.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tessera {

namespace {

constexpr size_t kNumCodes = 0x110000;

using C = Category;

constexpr std::pair<std::string_view, Categories> kNames[] = {
    {"c", only(C::cn) | from_to(C::cc, C::co)},
    {"cc", only(C::cc)},
    {"cf", only(C::cf)},
    {"cn", only(C::cn)},
    {"co", only(C::co)},
    {"cs", only(C::cs)},
    {"l", kLetters},
    {"lc", from_to(C::lu, C::lt)},
    {"ll", only(C::ll)},
    {"lm", only(C::lm)},
    {"lo", only(C::lo)},
    {"lt", only(C::lt)},
    {"lu", only(C::lu)},
    {"m", kMarks},
    {"mc", only(C::mc)},
    {"me", only(C::me)},
    {"mn", only(C::mn)},
    {"n", kNumbers},
    {"nd", only(C::nd)},
    {"nl", only(C::nl)},
    {"no", only(C::no)},
    {"p", from_to(C::pc, C::po)},
    {"pc", only(C::pc)},
    {"pd", only(C::pd)},
    {"pe", only(C::pe)},
    {"pf", only(C::pf)},
    {"pi", only(C::pi)},
    {"po", only(C::po)},
    {"ps", only(C::ps)},
    {"s", from_to(C::sm, C::so)},
    {"sc", only(C::sc)},
    {"sk", only(C::sk)},
    {"sm", only(C::sm)},
    {"so", only(C::so)},
    {"z", from_to(C::zs, C::zp)},
    {"zl", only(C::zl)},
    {"zp", only(C::zp)},
    {"zs", only(C::zs)},
    {"other", only(C::cn) | from_to(C::cc, C::co)},
    {"control", only(C::cc)},
    {"format", only(C::cf)},
    {"unassigned", only(C::cn)},
    {"privateuse", only(C::co)},
    {"surrogate", only(C::cs)},
    {"letter", kLetters},
    {"casedletter", from_to(C::lu, C::lt)},
    {"lowercaseletter", only(C::ll)},
    {"modifierletter", only(C::lm)},
    {"otherletter", only(C::lo)},
    {"titlecaseletter", only(C::lt)},
    {"uppercaseletter", only(C::lu)},
    {"mark", kMarks},
    {"combiningmark", kMarks},
    {"spacingmark", only(C::mc)},
    {"enclosingmark", only(C::me)},
    {"nonspacingmark", only(C::mn)},
    {"number", kNumbers},
    {"decimalnumber", only(C::nd)},
    {"letternumber", only(C::nl)},
    {"othernumber", only(C::no)},
    {"punctuation", from_to(C::pc, C::po)},
    {"connectorpunctuation", only(C::pc)},
    {"dashpunctuation", only(C::pd)},
    {"closepunctuation", only(C::pe)},
    {"finalpunctuation", only(C::pf)},
    {"initialpunctuation", only(C::pi)},
    {"otherpunctuation", only(C::po)},
    {"openpunctuation", only(C::ps)},
    {"symbol", from_to(C::sm, C::so)},
    {"currencysymbol", only(C::sc)},
    {"modifiersymbol", only(C::sk)},
    {"mathsymbol", only(C::sm)},
    {"othersymbol", only(C::so)},
    {"separator", from_to(C::zs, C::zp)},
    {"lineseparator", only(C::zl)},
    {"paragraphseparator", only(C::zp)},
    {"spaceseparator", only(C::zs)},
};

constexpr Categories kWordCategories = kLetters | only(C::nl) | kMarks | only(C::nd) | only(C::pc);

bool contains(std::span<const CodeRange> ranges, char32_t code) {
  const auto behind = std::upper_bound(ranges.begin(), ranges.end(), code,
                                       [](char32_t c, const CodeRange& range) { return c < range.first; });
  return behind != ranges.begin() && code <= (behind - 1)->last;
}

Categories category_bit(char32_t code) {
  return only(category_table()[code]);
}

// The ranges of all code points that `is_member` accepts.
template <typename IsMember>
std::vector<CodeRange> ranges_where(const IsMember& is_member) {
  std::vector<CodeRange> ranges;
  for (char32_t code = 0; code < kNumCodes; ++code) {
    if (!is_member(code)) continue;
    if (!ranges.empty() && ranges.back().last + 1 == code) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return ranges;
}

}  // namespace

std::optional<Categories> categories_of(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const auto& [known, categories] : kNames) {
    if (known == plain) return categories;
  }
  return std::nullopt;
}

const std::vector<Category>& category_table() {
  static const std::vector<Category> table = [] {
    std::vector<Category> categories(kNumCodes);
    for (size_t i = 0; i < kCategoryRuns.size(); ++i) {
      const size_t end = i + 1 < kCategoryRuns.size() ? kCategoryRuns[i + 1] >> 5 : kNumCodes;
      for (size_t code = kCategoryRuns[i] >> 5; code < end; ++code) {
        categories[code] = static_cast<Category>(kCategoryRuns[i] & 31);
      }
    }
    return categories;
  }();
  return table;
}

std::vector<CodeRange> ranges_of(Categories categories) {
  return ranges_where([&](char32_t code) { return (categories & category_bit(code)) != 0; });
}

std::vector<CodeRange> ranges_of_word_characters() {
  return ranges_where([](char32_t code) {
    return (kWordCategories & category_bit(code)) != 0 || contains(kOtherWordCharacters, code);
  });
}

std::vector<CodeRange> ranges_of_digits() {
  return ranges_where(
      [](char32_t code) { return (kNumbers & category_bit(code)) != 0 || contains(kOtherDigits, code); });
}

std::vector<CodeRange> complement(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> others;
  char32_t begin = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > begin) others.push_back({begin, range.first - 1});
    begin = range.last + 1;
  }
  if (begin < kNumCodes) others.push_back({begin, kNumCodes - 1});
  return others;
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_word_character(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  // The table kOtherWordCharacters comes from Oniguruma's \w. Its entries up to 0xFF are superscripts and fractions.
  // Rust's \w does not match these entries, because they are not alphabetic.
  return (kWordCategories & category_bit(code)) != 0 || (code > 0xFF && contains(kOtherWordCharacters, code));
}

bool is_newly_normalized(char32_t code) {
  static const std::vector<bool> table = [] {
    std::vector<bool> newer(kNumCodes);
    for (char32_t c = 0; c < kNumCodes; ++c) {
      // kNewlyNormalized contains only assigned code points, so the unassigned code points are added here.
      newer[c] = category_table()[c] == Category::cn || contains(kNewlyNormalized, c);
    }
    return newer;
  }();
  return table[code];
}

}  // namespace tessera
