// Tests the character classes and normal forms of all code points. Each result is a long text that must equal the
// result of Hugging Face's library `tokenizers`. The file sweeps.json does not contain the library's results, only the
// number of bytes and the FNV-1a hash of each result. tools/compare_tokenizers.py wrote this file.
#include "tessera/data/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/tokenizer_pattern.h"
#include "tessera/data/tokenizer_split.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string hash_of(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string utf8(char32_t code) {
  std::string text;
  append_code_point(text, code);
  return text;
}

bool is_surrogate(char32_t code) {
  return code >= 0xD800 && code <= 0xDFFF;
}

// Returns all code points except surrogates, in texts of up to 512 code points. The matcher limits the steps of a
// search. In such short texts, a search that finds nothing stays below this limit.
std::vector<std::string> all_code_points() {
  std::vector<std::string> texts;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code % 512 == 0) texts.emplace_back();
    if (!is_surrogate(code)) append_code_point(texts.back(), code);
  }
  return texts;
}

// Returns the characters that `pattern` matches, as one text. Each match of the pattern must be one character.
std::string matched(const std::string& pattern, const std::vector<std::string>& texts) {
  const auto matcher = make_regex_matcher(pattern, "test");
  std::string result;
  for (const std::string& text : texts) {
    std::vector<Span> matches;
    matcher->find(text, matches);
    for (const Span& match : matches) result.append(text, match.begin, match.end - match.begin);
  }
  return result;
}

std::string in_ranges(const std::vector<CodeRange>& ranges) {
  std::string text;
  for (const CodeRange& range : ranges) {
    for (char32_t code = range.first; code <= range.last; ++code) text += utf8(code);
  }
  return text;
}

// Returns the normal form of every code point alone, and of every code point between two combining marks: a mark of
// the highest combining class (240, U+0345) before it, and a mark of the lowest class above 0 (1, U+0334) after it.
std::string all_forms(NormalForm form) {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (is_surrogate(code)) continue;
    const std::string c = utf8(code);
    text += c + "\na\u0345" + c + "\u0334a\n";
  }
  return normalize(text, form);
}

TEST(Unicode, EveryCodePointIsTreatedAsTheLibraryTreatsIt) {
  std::ifstream file(std::filesystem::path(TESSERA_TEST_DIR) / "unit/data/tokenizer_references/sweeps.json");
  const Json sweeps = Json::parse(file);
  const std::map<std::string, NormalForm> forms = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  const std::vector<std::string> all = all_code_points();
  ASSERT_GE(sweeps.size(), 20u);
  for (const Json& sweep : sweeps) {
    const std::string kind = sweep["kind"], name = sweep["name"];
    const std::string ours = kind == "class"    ? matched(name, all)
                             : kind == "digits" ? in_ranges(ranges_of_digits())
                                                : all_forms(forms.at(name));
    EXPECT_EQ(ours.size(), sweep["bytes"].get<size_t>()) << name;
    EXPECT_EQ(hash_of(ours), sweep["hash"].get<std::string>()) << name;
  }
}

TEST(Unicode, RangesOfCategoriesAndTheirComplementCoverEveryCodePoint) {
  RandomStream random(1, 0);
  for (int i = 0; i < 20; ++i) {
    const auto categories = static_cast<Categories>(random.next_below(1u << 30));
    const auto inside = ranges_of(categories);
    size_t count = 0;
    for (const auto& ranges : {inside, complement(inside)}) {
      for (size_t r = 0; r < ranges.size(); ++r) {
        ASSERT_LE(ranges[r].first, ranges[r].last);
        ASSERT_TRUE(r == 0 || ranges[r].first > ranges[r - 1].last + 1);
        count += ranges[r].last - ranges[r].first + 1;
      }
    }
    EXPECT_EQ(count, 0x110000u);
    for (const CodeRange& range : inside) EXPECT_TRUE(categories & only(category_table()[range.first]));
  }
}

TEST(Unicode, NamesOfCategories) {
  EXPECT_EQ(categories_of("L"), kLetters);
  EXPECT_EQ(categories_of("uppercase_Letter"), only(Category::lu));
  EXPECT_EQ(categories_of("Decimal Number"), only(Category::nd));
  EXPECT_EQ(categories_of("Han"), std::nullopt);
}

TEST(Pattern, KeepsWhatIsNoCategory) {
  for (const char* pattern :
       {"", "\\", "\\p", "\\p{Han}", "\\p{L", "[[:alpha:]\\]]", "(?#\\d", "[]a]", "\\\\d", "\\c[", "a|(?<n>b)(?=c)"}) {
    EXPECT_EQ(with_code_points(pattern), pattern);
  }
}

TEST(Pattern, PutsClassesIntoClassesAndKeepsTheirCase) {
  const std::string nd = in_ranges(ranges_of(only(Category::nd)));
  const std::string digit = with_code_points("\\d");
  EXPECT_TRUE(digit.starts_with("[\\x{30}-\\x{39}"));
  EXPECT_EQ(with_code_points("[^a\\d]x"), "[^a" + digit + "]x");
  EXPECT_EQ(with_code_points("(?i:\\d)\\d"), "(?i:(?-i:" + digit + "))" + digit);
  EXPECT_EQ(with_code_points("(?i)[]\\d]"), "(?i)[]" + digit + "]");
  EXPECT_EQ(with_code_points("((?i)a)\\d"), "((?i)a)" + digit);
  EXPECT_EQ(with_code_points("\\P{Nd}"), with_code_points("\\p{^Nd}"));
  EXPECT_EQ(with_code_points("\\P{^Nd}"), digit);
}

// Makes patterns from random parts. Some parts are categories of characters, such as \d or \p{L}. make_regex_matcher()
// replaces each category by the ranges of its code points. The library Oniguruma must accept the result if and only
// if it accepts the pattern with [x] in place of each category.
TEST(Pattern, RandomPatternsStayValid) {
  static constexpr std::string_view kBits[] = {"\\d", "\\W",  "\\p{L}", "\\P{Lu}", "[",         "[^", "]",
                                               "(",   "(?i:", "(?i)",   ")",       "a",         "-",  "&&",
                                               "|",   "+",    "\\]",    "{2}",     "[:alpha:]", "b"};
  RandomStream random(2, 0);
  const auto accepts = [](const std::string& pattern) {
    try {
      make_regex_matcher(pattern, "test");
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  int num_valid = 0;
  for (int i = 0; i < 300; ++i) {
    std::string pattern, plain;
    for (uint64_t n = random.next_below(8); n > 0; --n) {
      const uint64_t bit = random.next_below(std::size(kBits));
      pattern += kBits[bit];
      plain += bit < 4 ? "[x]" : kBits[bit];
    }
    const bool valid = accepts(plain);
    num_valid += valid;
    EXPECT_EQ(accepts(pattern), valid) << pattern;
  }
  EXPECT_GT(num_valid, 50);
}

}  // namespace
}  // namespace tessera
