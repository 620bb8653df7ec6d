#include "tessera/data/text.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(Text, FindsInvalidUtf8) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("aé中😀"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(find_invalid_utf8("é\x80"), 2u);              // a continuation byte without a lead byte
  EXPECT_EQ(find_invalid_utf8("a\xC0\xAF"), 1u);          // "/" in an overlong encoding
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);      // a surrogate
  EXPECT_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("a\xF0\x9F\x98"), 1u);      // truncated
}

TEST(Text, CodePointsToBytes) {
  std::string text;
  std::vector<size_t> offsets;
  for (int i = 0; i < 300; ++i) {
    offsets.push_back(text.size());
    text += i % 3 == 0 ? "a" : i % 3 == 1 ? "中" : "😀";
  }
  const CodePoints code_points(text);
  for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(code_points.byte_offset(static_cast<int64_t>(i)), offsets[i]);
  EXPECT_EQ(code_points.byte_offset(300), text.size());
  EXPECT_EQ(code_points.byte_offset(INT64_MAX), text.size());
  EXPECT_EQ(CodePoints("").byte_offset(0), 0u);
}

// For each text of seven letters a or b, compares nearest_occurrence() with a search over all occurrences.
TEST(Text, NearestOccurrence) {
  for (unsigned bits = 0; bits < 128; ++bits) {
    std::string text;
    for (unsigned i = 0; i < 7; ++i) text += bits >> i & 1 ? 'a' : 'b';
    for (const std::string needle : {"a", "ab", "aba", "abab", "aabaa", "abaabaab"}) {
      for (size_t wanted = 0; wanted <= text.size(); ++wanted) {
        size_t expected = std::string::npos;
        for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) {
          const auto distance = [&](size_t x) { return x > wanted ? x - wanted : wanted - x; };
          if (expected == std::string::npos || distance(at) < distance(expected)) expected = at;
        }
        EXPECT_EQ(nearest_occurrence(text, needle, wanted), expected) << text << ' ' << needle << ' ' << wanted;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
