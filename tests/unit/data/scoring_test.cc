#include "tessera/data/scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// tools/make_scoring_reference.py made scoring_reference.json with Python's own string functions.
TEST(Scoring, EqualsPythonReference) {
  std::ifstream file(TESSERA_TEST_DIR "/unit/data/scoring_reference.json");
  const auto rows = nlohmann::json::parse(file);
  ASSERT_GE(rows.size(), 140u);
  for (const auto& row : rows) {
    const auto prediction = row["prediction"].get<std::string>();
    const auto references = row["references"].get<std::vector<std::string>>();
    SCOPED_TRACE(prediction);
    EXPECT_EQ(normalized_words(prediction), row["words"].get<std::vector<std::string>>());
    EXPECT_EQ(normalized_words(prediction, Scoring::workshop), row["workshop_words"].get<std::vector<std::string>>());
    // Tessera and Python perform the same few operations, in double precision and in the same order. So no tolerance is
    // needed.
    EXPECT_EQ(exact_match(prediction, references), row["exact_match"].get<double>());
    EXPECT_EQ(f1(prediction, references), row["f1"].get<double>());
    if (references.empty()) continue;  // the workshop's scoring always has a reference
    EXPECT_EQ(exact_match(prediction, references, Scoring::workshop), row["workshop_exact_match"].get<double>());
    EXPECT_EQ(f1(prediction, references, Scoring::workshop), row["workshop_f1"].get<double>());
  }
}

TEST(Scoring, BestOfAllReferences) {
  // The official scoring takes the best reference. The workshop's scoring uses only the first one.
  const std::vector<std::string> references = {"in the year 1066", "1066"};
  EXPECT_EQ(exact_match("1066.", references), 1.0);
  EXPECT_EQ(exact_match("1066.", references, Scoring::workshop), 0.0);
}

TEST(Scoring, F1CountsWordsByTheirMultiplicity) {
  const std::vector<std::string> references = {"red blue blue"};
  // A word counts as often as both texts contain it: "red" once and "blue" once. So 2 of the 3 words of each text are
  // common.
  EXPECT_DOUBLE_EQ(f1("red red blue", references), 2.0 / 3);
  // "blue" occurs twice in each text. The official scoring of SQuAD counts it as two common words. The workshop's
  // scoring uses a set of words, so it counts "blue" once.
  EXPECT_DOUBLE_EQ(f1("blue blue", references), 2 * 1.0 * (2.0 / 3) / (1.0 + 2.0 / 3));
  EXPECT_DOUBLE_EQ(f1("blue blue", references, Scoring::workshop), 2 * 0.5 * (1.0 / 3) / (0.5 + 1.0 / 3));
}

TEST(Scoring, AnswersThatSayThatThereIsNone) {
  for (const char* answer : {"No Answer", "no answer.", " The no  ANSWER!"}) {
    EXPECT_TRUE(says_no_answer(answer, "No Answer"));
  }
  for (const char* answer : {"", "No", "Answer", "no answer here", "the"}) {
    EXPECT_FALSE(says_no_answer(answer, "No Answer"));
  }
  // Texts without words have to be equal.
  EXPECT_TRUE(says_no_answer("...", "..."));
  EXPECT_FALSE(says_no_answer("the", "..."));
  EXPECT_TRUE(says_no_answer("", ""));
  EXPECT_FALSE(says_no_answer("the", ""));
}

TEST(Scoring, InvalidUtf8CountsAsReplacementCharacters) {
  EXPECT_THAT(normalized_words("ok \xFF\xC3 \xE6\x9D"), ElementsAre("ok", "\uFFFD\uFFFD", "\uFFFD\uFFFD"));
  EXPECT_THAT(normalized_words(""), IsEmpty());
}

}  // namespace
}  // namespace tessera
