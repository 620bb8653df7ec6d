#include "tessera/session/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

struct Outcome {
  std::vector<std::string> keys;
  std::string notes;
};

// Calls predictions_by_id() for examples with the given ids. Returns the keys of the result, and the notes that the
// call prints. The prediction of example i is "answer i".
Outcome keys_of(const std::vector<std::string>& ids) {
  Outcome outcome;
  Console console({}, {{}, [&](std::string_view text) { outcome.notes += text; }, {}});
  std::vector<Example> examples(ids.size());
  std::vector<std::string> predictions;
  for (size_t i = 0; i < ids.size(); ++i) {
    examples[i].id = ids[i];
    predictions.push_back("answer " + std::to_string(i));
  }
  const Record record = predictions_by_id(examples, predictions, console);
  for (const auto& [key, value] : record.items()) {
    EXPECT_EQ(value, predictions[outcome.keys.size()]);  // all predictions are present, in the order of the examples
    outcome.keys.push_back(key);
  }
  EXPECT_EQ(std::set(outcome.keys.begin(), outcome.keys.end()).size(), ids.size());
  return outcome;
}

TEST(Predictions, AreKeyedById) {
  const Outcome outcome = keys_of({"a", "c", "b"});
  EXPECT_THAT(outcome.keys, testing::ElementsAre("a", "c", "b"));
  EXPECT_EQ(outcome.notes, "");
}

TEST(Predictions, ARowWithoutIdHasItsNumber) {
  EXPECT_THAT(keys_of({"", "a", ""}).keys, testing::ElementsAre("0", "a", "2"));
  const Outcome outcome = keys_of({"", "0", "0#2"});  // a row's own id takes precedence over a number
  EXPECT_THAT(outcome.keys, testing::ElementsAre("0#3", "0", "0#2"));
  EXPECT_EQ(outcome.notes, "");
}

TEST(Predictions, AreKeptWhereIdsRepeat) {
  const Outcome outcome = keys_of({"a", "b", "a", "a#2", "a"});
  EXPECT_THAT(outcome.keys, testing::ElementsAre("a", "b", "a#3", "a#2", "a#4"));
  EXPECT_THAT(outcome.notes, testing::HasSubstr("warning: 2 of 5 examples repeat the id of an earlier example"));
}

// If each key were compared with all earlier keys, this test would be very slow.
TEST(Predictions, ManyAreKeyedQuickly) {
  keys_of(std::vector<std::string>(30000, "same"));
  keys_of(std::vector<std::string>(30000, ""));
}

}  // namespace
}  // namespace tessera
