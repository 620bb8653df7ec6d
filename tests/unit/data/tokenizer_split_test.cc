#include "tessera/data/tokenizer_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> pieces_of(const Splitter& splitter, const std::string& text) {
  std::vector<Span> matches, pieces;
  splitter.split(text, {0, text.size()}, matches, pieces);
  std::vector<std::string> result;
  for (const Span& piece : pieces) result.push_back(text.substr(piece.begin, piece.end - piece.begin));
  return result;
}

std::vector<Span> matches_of(const Matcher& matcher, const std::string& text) {
  std::vector<Span> matches;
  matcher.find(text, matches);
  return matches;
}

// Returns a text of up to `num_characters` parts. Most parts are characters or short strings that matter to the tested
// patterns. Each of the other parts is an arbitrary character.
std::string random_text(RandomStream& random, int num_characters) {
  static constexpr std::string_view kBits[] = {
      " ", " ", "  ", "\n",  "\r\n",   "\t",     "a",      "é",      "ß",      "中", "1", "٣",
      "½", "'", "'s", "'re", "'LL",    ",",      ".",      "!",      "(",      ")",  "|", "。",
      "،", "۔", "।",  "…",   "\u0300", "\u200b", "\u3000", "\u0085", "\u00a0", "😀",  "-"};
  std::string text;
  for (int i = 0; i < num_characters; ++i) {
    if (random.next_below(8) != 0) {
      text += kBits[random.next_below(std::size(kBits))];
      continue;
    }
    const auto code = static_cast<char32_t>(random.next_below(random.next_below(2) ? 0x3000 : 0x110000));
    if (code < 0xD800 || code > 0xDFFF) append_code_point(text, code);
  }
  return text;
}

// Returns a text that has each code point of [begin, end) after a letter, after a space, after itself, and before a
// letter.
std::string text_of_range(char32_t begin, char32_t end) {
  std::string text;
  for (char32_t code = begin; code < end; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    for (const char* before : {"a", " ", ""}) {
      text += before;
      append_code_point(text, code);
    }
  }
  return text;
}

class KnownPattern : public testing::TestWithParam<const char*> {};

TEST_P(KnownPattern, HandWrittenMatcherEqualsOniguruma) {
  const auto by_hand = make_matcher(GetParam(), "test");
  const auto regex = make_regex_matcher(GetParam(), "test");
  RandomStream random(1, 0);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random, static_cast<int>(random.next_below(24)));
    ASSERT_EQ(matches_of(*by_hand, text), matches_of(*regex, text)) << text;
  }
  constexpr char32_t kChunk = 64;
  for (char32_t code = 0; code < 0x20000; code += kChunk) {
    const std::string text = text_of_range(code, code + kChunk);
    ASSERT_EQ(matches_of(*by_hand, text), matches_of(*regex, text))
        << "code points from " << static_cast<uint32_t>(code);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern, testing::Values(kBloomPattern, kGpt2Pattern));

TEST(Split, BloomPatternHasExactly39Delimiters) {
  const Splitter splitter(make_regex_matcher(kBloomPattern, "test"), SplitBehavior::isolated, false);
  EXPECT_THAT(pieces_of(splitter, "Hello, world! (foo|bar)  x"),
              ElementsAre("Hello", ",", " world", "! (", "foo", "|", "bar", ") ", " x"));
  const auto matcher = make_matcher(kBloomPattern, "test");
  int num_delimiters = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_code_point(text, code);
    num_delimiters += matches_of(*matcher, text).empty();
  }
  EXPECT_EQ(num_delimiters, 39);
}

TEST(Split, BehaviorsPlaceTheDelimiters) {
  const auto pieces = [](SplitBehavior behavior, bool invert) {
    return pieces_of(Splitter(make_matcher("-", "test"), behavior, invert), "the-final--count");
  };
  EXPECT_THAT(pieces(SplitBehavior::removed, false), ElementsAre("the", "final", "count"));
  EXPECT_THAT(pieces(SplitBehavior::isolated, false), ElementsAre("the", "-", "final", "-", "-", "count"));
  EXPECT_THAT(pieces(SplitBehavior::merged_with_previous, false), ElementsAre("the-", "final-", "-", "count"));
  EXPECT_THAT(pieces(SplitBehavior::merged_with_next, false), ElementsAre("the", "-final", "-", "-count"));
  EXPECT_THAT(pieces(SplitBehavior::contiguous, false), ElementsAre("the", "-", "final", "--", "count"));
  EXPECT_THAT(pieces(SplitBehavior::removed, true), ElementsAre("-", "-", "-"));
}

TEST(Split, RefusesInvalidRegularExpressions) {
  try {
    make_matcher("(unclosed", "file: key");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file: key: Oniguruma rejects the pattern"));
  }
}

TEST(Split, StopsPatternsThatBacktrackTooLong) {
  const auto matcher = make_matcher("(a+)+(a+)+(a+)+c", "file: key");
  try {
    matches_of(*matcher, std::string(5000, 'a') + "b");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file: key: the pattern needs too many steps on a text of 5001 bytes"));
  }
}

TEST(Text, RepairsEveryMaximalInvalidSubpart) {
  const auto repaired = [](const std::string& bytes) {
    std::string text;
    append_repaired_utf8(text, bytes);
    EXPECT_TRUE(is_utf8(text));
    EXPECT_EQ(is_utf8(bytes), text == bytes);
    return text;
  };
  const std::string r = "\uFFFD";
  EXPECT_EQ(repaired("plain, \u00e9\u4e2d\U0001F600"), "plain, \u00e9\u4e2d\U0001F600");
  EXPECT_EQ(repaired("\x80"
                     "a\xff"),
            r + "a" + r);
  EXPECT_EQ(repaired("\xe2\x82"
                     "a"),
            r + "a");  // a truncated character is one subpart
  EXPECT_EQ(repaired("\xf0\x9f\x98"), r);
  EXPECT_EQ(repaired("\xc0\x80"), r + r);  // overlong
  EXPECT_EQ(repaired("\xe0\x80\x80"), r + r + r);
  EXPECT_EQ(repaired("\xed\xa0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(repaired("\xf4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
}

TEST(Text, NormalFormsComposeAndDecompose) {
  EXPECT_EQ(normalize("e\u0301 \ufb01", NormalForm::nfc), "\u00e9 \ufb01");
  EXPECT_EQ(normalize("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize("\ufb01 e\u0301", NormalForm::nfkc), "fi \u00e9");
  EXPECT_EQ(normalize("\ufb01\u00e9", NormalForm::nfkd), "fie\u0301");
  EXPECT_EQ(normalize(std::string_view("a\0\u00e9", 4), NormalForm::nfc), std::string("a\0\u00e9", 4));
}

// A quadratic algorithm would need 10^10 steps here.
TEST(Text, NormalFormsOfManyMarks) {
  constexpr int kCount = 100'000;
  // The combining classes of these two marks are 230 and 220. Normal forms put the marks of the lower class first.
  const std::string above = "\u0301", below = "\u0323";
  std::string mixed, all_above, all_below;
  for (int i = 0; i < kCount; ++i) {
    mixed += above + below;
    all_above += above;
    all_below += below;
  }
  for (const NormalForm form : {NormalForm::nfd, NormalForm::nfkd})
    EXPECT_EQ(normalize("a" + mixed + "b", form), "a" + all_below + all_above + "b");
  // The letter a and the first U+0323 become the single character U+1EA1. The marks U+0301 stay, because Unicode has no
  // character that is composed of a, U+0323 and U+0301.
  for (const NormalForm form : {NormalForm::nfc, NormalForm::nfkc})
    EXPECT_EQ(normalize("a" + mixed + "b", form), "\u1ea1" + all_below.substr(below.size()) + all_above + "b");
  EXPECT_EQ(normalize(mixed, NormalForm::nfc), all_below + all_above) << "marks without a letter";
}

}  // namespace
}  // namespace tessera
