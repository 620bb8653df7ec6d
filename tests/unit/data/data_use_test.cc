#include "tessera/data/data_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kEos = 7;

// Makes one token per byte, so questions and contexts can be cut at any byte.
std::vector<int32_t> encode_bytes(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(1000 + static_cast<unsigned char>(c));
  return ids;
}

std::vector<int32_t> by_bytes(TextPlace, std::string_view text) {
  return encode_bytes(text);
}

// Draws random numbers from a fixed seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
    shuffle(std::span<int64_t>(order), seed_, ++stream_);
    return order[0];
  }
  std::string words(int64_t length) {
    std::string text;
    for (int64_t i = 0; i < length; ++i) text += i % 5 == 4 ? ' ' : static_cast<char>('a' + below(26));
    return text;
  }

 private:
  uint64_t seed_, stream_ = 0;
};

Example drawn_example(Draw& draw) {
  Example example;
  example.place = "f.jsonl:1";
  if (draw.below(2) == 0) {
    example.content = PlainText{draw.words(draw.below(200))};
    return example;
  }
  Question& question = example.content.emplace<Question>();
  question.question = draw.words(draw.below(40));
  question.context = draw.words(1 + draw.below(150));
  question.answer_start = draw.below(std::ssize(question.context));
  question.answerable = true;
  question.answers = {question.context.substr(static_cast<size_t>(question.answer_start), 1 + draw.below(20))};
  return example;
}

// Returns the tokens that a row has before it is cut.
std::vector<int32_t> all_tokens(const Example& example, Objective objective) {
  std::vector<int32_t> ids = encode_bytes(example.text() ? example.text()->text : prompt_text(example));
  if (!example.text() && objective != Objective::separate) {
    const std::vector<int32_t> answer = encode_bytes(" " + example.question()->answers[0]);
    ids.insert(ids.end(), answer.begin(), answer.end());
  }
  if (example.text() || objective != Objective::separate) ids.push_back(kEos);
  return ids;
}

// Encodes random rows with random options. Checks that each token is counted once: as used, cut or dropped. Also checks
// that the samples of a plain text are its tokens in order, without the tokens that were cut.
TEST(DataUse, UsedCutAndDroppedTokensAddUp) {
  DataUse seen;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    DataUse use;
    int64_t all = 0, num_rows = 1 + draw.below(4);
    const bool texts = draw.below(2) == 0;
    PromptOptions options{.eos_id = kEos};
    options.objective = texts ? Objective::causal_lm : static_cast<Objective>(draw.below(3));
    options.truncation = static_cast<Truncation>(draw.below(2));
    options.long_texts = static_cast<LongTexts>(draw.below(3));
    options.max_length = 2 + draw.below(120);
    for (int64_t r = 0; r < num_rows; ++r) {
      Example example = drawn_example(draw);
      while (example.text() && !texts) example = drawn_example(draw);
      const EncodedRow row = encode_row(example, by_bytes, options);
      const std::vector<int32_t> tokens = all_tokens(example, options.objective);
      ASSERT_EQ(row.num_tokens, std::ssize(tokens));
      std::vector<int32_t> joined;
      for (const Sample& sample : row.samples) {
        ASSERT_LE(std::ssize(sample.ids), options.max_length);
        ASSERT_EQ(sample.labels.size(), sample.ids.size());
        ASSERT_EQ(sample.labels.back(), kNoTarget);
        joined.insert(joined.end(), sample.ids.begin(), sample.ids.end());
      }
      if (example.text() && !row.samples.empty()) {
        const bool cut = options.long_texts == LongTexts::truncate && row.samples.size() == 1;
        ASSERT_TRUE(cut || joined == tokens);
        ASSERT_TRUE(std::equal(joined.begin(), joined.end(), tokens.begin()));
        // A sample of one token has no target. It may occur only if max_length is 2 or the text has one token.
        for (const Sample& sample : row.samples) {
          ASSERT_TRUE(options.max_length == 2 || tokens.size() == 1 || sample.ids.size() > 1);
        }
      }
      ASSERT_TRUE(std::ssize(tokens) > options.max_length || joined == tokens);
      use.add(row);
      all += row.num_tokens;
    }
    ASSERT_EQ(use.tokens_used + use.tokens_cut + use.tokens_dropped, all);
    ASSERT_EQ(use.rows_used + use.rows_too_long + use.rows_left_out, num_rows);
    ASSERT_EQ(std::ssize(use.bad), use.rows_too_long);
    ASSERT_LE(use.rows_cut, use.rows_used);
    ASSERT_EQ(use.tokens_cut > 0, use.rows_cut > 0);
    seen.rows_cut += use.rows_cut;
    seen.rows_too_long += use.rows_too_long;
    seen.rows_left_out += use.rows_left_out;
    seen.rows_without_loss += use.rows_without_loss;
  }
  for (const int64_t count : {seen.rows_cut, seen.rows_too_long, seen.rows_left_out, seen.rows_without_loss}) {
    EXPECT_GT(count, 50);  // the random rows cover each of these cases
  }
}

TEST(DataUse, ATextThatTheTokenizerRejectsIsABadRow) {
  Example example;
  example.place = "f.jsonl:3";
  example.content = PlainText{"a"};
  const auto refuses = [](TextPlace, std::string_view) -> std::vector<int32_t> {
    throw InputError("", "a text of 1 byte");
  };
  DataUse use;
  use.add(encode_row(example, refuses, {.objective = Objective::causal_lm}));
  EXPECT_EQ(use.rows_too_long, 1);
  EXPECT_EQ(use.bad.at(0).place, "f.jsonl:3");
  EXPECT_EQ(use.bad.at(0).what, "a text of 1 byte");
}

std::string refusal(int64_t num_bad, int64_t num_rows, BadRows policy, double most) {
  std::vector<BadRow> bad;
  for (int64_t i = 0; i < num_bad; ++i) bad.push_back({"f.jsonl:" + std::to_string(i + 1), "is odd", "Make it even"});
  try {
    check_bad_rows(bad, num_rows, policy, most, {"f.jsonl"});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(BadRows, AreSkippedUpToAShare) {
  EXPECT_EQ(refusal(0, 0, BadRows::stop, 0), "");
  EXPECT_EQ(refusal(10, 100, BadRows::skip, 0.1), "");
  EXPECT_EQ(refusal(11, 100, BadRows::skip, 0.1),
            "f.jsonl: 11 of its 100 rows cannot be used, and max_bad_rows is 0.1: line 1: is odd; line 2: is odd; "
            "line 3: is odd; …. Make it even. To skip them, raise max_bad_rows");
  EXPECT_THAT(refusal(1, 100, BadRows::skip, 0), HasSubstr("1 of its 100 rows cannot be used"));
  EXPECT_EQ(refusal(2, 2, BadRows::skip, 1),
            "f.jsonl: none of its 2 rows can be used: line 1: is odd; line 2: is odd. Make it even");
  EXPECT_EQ(refusal(1, 100, BadRows::stop, 1), "f.jsonl:1: is odd. Make it even");
}

TEST(BadRows, CountTheirQuestions) {
  const std::vector<BadRow> bad = {{"f.json: data[1]", "is odd (20 questions)", "Make it even", 20},
                                   {"f.json: data[2]", "is odd", ""}};
  EXPECT_NO_THROW(check_bad_rows(bad, 210, BadRows::skip, 0.1, {"f.json"}));
  try {
    check_bad_rows(bad, 209, BadRows::skip, 0.1, {"f.json"});
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("f.json: 21 of its 209 rows cannot be used, and max_bad_rows is 0.1: data[1]: "));
  }
  DataUse use;
  use.add_malformed(bad);
  EXPECT_EQ(use.rows_malformed, 21);
}

TEST(BadRows, ThePathIsShownOnce) {
  const std::vector<std::string> files = {"a", "a:1", "b.json"};
  EXPECT_EQ(data_name({"a"}), "a");
  EXPECT_EQ(data_name({"a", "b"}), "a and 1 more file");
  EXPECT_EQ(data_name(files), "a and 2 more files");
  std::string named;
  EXPECT_EQ(place_in_file("a:12", files, named), "a: line 12");
  EXPECT_EQ(place_in_file("a:12:5", files, named), "line 12, column 5");
  EXPECT_EQ(place_in_file("a:12: answers[0]", files, named), "line 12: answers[0]");
  EXPECT_EQ(place_in_file("b.json: data[0].qas[1]", files, named), "b.json: data[0].qas[1]");
  EXPECT_EQ(place_in_file("b.json: [1]", files, named), "[1]");
  EXPECT_EQ(place_in_file("a:1:7", files, named), "a:1: line 7");  // the longest path
  EXPECT_EQ(place_in_file("b.json", files, named), "b.json");
  EXPECT_EQ(place_in_file("elsewhere:3", files, named), "elsewhere:3");
}

}  // namespace
}  // namespace tessera
