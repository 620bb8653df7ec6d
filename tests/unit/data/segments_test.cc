#include "tessera/data/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::ElementsAre;

// A token per byte; the start of a sample has the token 1000.
std::vector<int32_t> by_bytes(TextPlace place, std::string_view text) {
  std::vector<int32_t> ids;
  if (place == TextPlace::start) ids.push_back(1000);
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string text_of(const EncodedSegments& encoded, bool answers) {
  std::string text;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    if (encoded.ids[i] < 256 && (encoded.is_answer[i] != 0) == answers) text += static_cast<char>(encoded.ids[i]);
  }
  return text;
}

Example question(std::string context, std::string answer) {
  const auto start = static_cast<int64_t>(context.find(answer));
  return {.place = {},
          .id = {},
          .content = Question{.context = std::move(context),
                              .question = "Who?",
                              .answers = {std::move(answer)},
                              .answer_start = start,
                              .answerable = true}};
}

TEST(Segments, EveryKindOfExampleHasAPromptAndAnAnswer) {
  const auto of = [](const Example& example, const std::string& answer) {
    const EncodedSegments encoded = encode_segments(segments_of(example, answer), by_bytes, 0);
    EXPECT_EQ(encoded.ids.at(0), 1000);
    EXPECT_EQ(std::count(encoded.ids.begin(), encoded.ids.end(), 1000), 1);
    EXPECT_EQ(encoded.num_tokens, std::ssize(encoded.ids));
    return text_of(encoded, false) + "|" + text_of(encoded, true);
  };
  EXPECT_EQ(of(question("It was Ada.", "Ada"), "Ada"), "Question: Who? Context: It was Ada. Answer:| Ada");
  EXPECT_EQ(of(question("", ""), ""), "Question: Who? Answer:|");
  EXPECT_EQ(of({{}, {}, Completion{"a:", "b"}}, "b"), "a:|b");
  EXPECT_EQ(of({{}, {}, PlainText{"a b"}}, ""), "|a b");
}

TEST(Segments, OnlyTheContextIsCutAroundTheAnswer) {
  const std::string context = std::string(50, '<') + "Ada" + std::string(50, '>');
  const std::vector<Segment> segments = segments_of(question(context, "Ada"), "Ada");
  const int64_t least = 1 + std::ssize(std::string("Question: Who? Context: Answer: Ada"));
  for (int64_t room = 0; room <= std::ssize(context) + 1; ++room) {
    const EncodedSegments encoded = encode_segments(segments, by_bytes, least + room);
    ASSERT_TRUE(encoded.fits);
    EXPECT_EQ(std::ssize(encoded.ids), least + room);
    EXPECT_EQ(text_of(encoded, true), " Ada");
    EXPECT_EQ(text_of(encoded, false).find("Ada") != std::string::npos, room >= 3) << room;
  }
  const EncodedSegments none = encode_segments(segments, by_bytes, least - 1);
  EXPECT_FALSE(none.fits);
  EXPECT_EQ(none.num_least, least);
  EXPECT_FALSE(encode_segments(std::vector<Segment>{{.content = "abc"}}, by_bytes, 3).fits);
}

TEST(Segments, TokensStandForThemselves) {
  const std::vector<Segment> segments{{.content = "a"}, {.content = std::vector<int32_t>{7, 8}, .is_answer = true}};
  EXPECT_THAT(encode_segments(segments, by_bytes, 0).ids, ElementsAre(1000, 'a', 7, 8));
}

}  // namespace
}  // namespace tessera
