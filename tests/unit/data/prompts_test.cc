#include "tessera/data/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int32_t kEos = 7;

// Imitates byte-level BPE. Each space of the text begins a new piece. The tokens are pairs of bytes within a piece; the
// last token of a piece may be a single byte. As with BPE, the tokens of a word therefore depend on whether a space
// comes before the word.
std::vector<int32_t> encode_pairs(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && text[end] != ' ') ++end;
    for (; i < end; i += 2) {
      const int32_t first = static_cast<unsigned char>(text[i]);
      ids.push_back(i + 1 < end ? 1000 + first * 256 + static_cast<unsigned char>(text[i + 1]) : first + 300);
    }
    i = end;
  }
  return ids;
}

std::vector<int32_t> by_pairs(TextPlace, std::string_view text) {
  return encode_pairs(text);
}

std::string decode_pairs(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (id >= 1000) text += static_cast<char>((id - 1000) / 256);
    if (id >= 300) text += static_cast<char>(id >= 1000 ? (id - 1000) % 256 : id - 300);
    if (id < 300) text += "</s>";
  }
  return text;
}

Example question_about(std::string context, std::string answer) {
  Example example;
  example.place = "f.json:7";
  example.id = "q1";
  Question& question = example.content.emplace<Question>();
  question.question = "Who was it?";
  question.answer_start = static_cast<int64_t>(context.find(answer));
  question.answerable = context.find(answer) != std::string::npos;
  if (!question.answerable) question.answer_start = -1;
  question.context = std::move(context);
  question.answers = {std::move(answer)};
  return example;
}

PromptOptions options_of(Objective objective, int64_t max_length = 512, Truncation truncation = Truncation::context) {
  return {.objective = objective, .truncation = truncation, .max_length = max_length, .eos_id = kEos};
}

// Returns the only sample of a row. Throws InputError if the row has no sample or several samples.
Sample encode_sample(const Example& example, const EncodeFn& encode, const PromptOptions& options) {
  EncodedRow row = encode_row(example, encode, options);
  if (row.samples.size() == 1) return std::move(row.samples[0]);
  throw InputError(row.fault.place, row.fault.what, row.fault.remedy);
}

Example prompt_with_completion(std::string prompt, std::string completion) {
  Example example = question_about("", "");
  example.content = Completion{std::move(prompt), std::move(completion)};
  return example;
}

Example plain_text(std::string text) {
  return {.place = {}, .id = {}, .content = PlainText{std::move(text)}};
}

TEST(Prompts, CompletionLearnsOnlyAnswerAndEnd) {
  const Example example = question_about("It was Ada.", "Ada");
  const Sample sample = encode_sample(example, by_pairs, options_of(Objective::completion));
  auto complete = encode_pairs("Question: Who was it? Context: It was Ada. Answer: Ada");
  complete.push_back(kEos);
  EXPECT_EQ(sample.ids, complete);
  const size_t prompt = encode_pairs("Question: Who was it? Context: It was Ada. Answer:").size();
  ASSERT_EQ(sample.labels.size(), complete.size());
  for (size_t t = 0; t < complete.size(); ++t) {
    const bool learned = t + 1 >= prompt && t + 1 < complete.size();
    EXPECT_EQ(sample.labels[t], learned ? complete[t + 1] : kNoTarget) << t;
  }
}

TEST(Prompts, AQuestionWithoutAnAnswerTeachesItsText) {
  Example example = question_about("It was Ada.", "");
  example.question()->answers.clear();
  PromptOptions options = options_of(Objective::completion);
  const std::string prompt = "Question: Who was it? Context: It was Ada. Answer:";
  EXPECT_EQ(decode_pairs(encode_sample(example, by_pairs, options).ids), prompt + " No Answer</s>");
  options.unanswerable_text = "none";
  EXPECT_EQ(decode_pairs(encode_sample(example, by_pairs, options).ids), prompt + " none</s>");
  options.unanswerable_text.clear();
  const Sample sample = encode_sample(example, by_pairs, options);
  EXPECT_EQ(decode_pairs(sample.ids), prompt + "</s>");
  std::vector<int32_t> labels(sample.ids.size(), kNoTarget);
  labels[labels.size() - 2] = kEos;
  EXPECT_EQ(sample.labels, labels);
  options.objective = Objective::separate;
  EXPECT_THAT(encode_sample(example, by_pairs, options).labels, testing::Each(kNoTarget));
}

TEST(Prompts, CausalLmLearnsEveryToken) {
  const Sample sample = encode_sample(question_about("It was Ada.", "Ada"), by_pairs, options_of(Objective::causal_lm));
  EXPECT_EQ(decode_pairs(sample.ids), "Question: Who was it? Context: It was Ada. Answer: Ada</s>");
  for (size_t t = 0; t + 1 < sample.ids.size(); ++t) EXPECT_EQ(sample.labels[t], sample.ids[t + 1]);
  EXPECT_EQ(sample.labels.back(), kNoTarget);
}

TEST(Prompts, PromptLearnsThePromptAlone) {
  const Sample sample = encode_sample(question_about("It was Ada.", "Ada"), by_pairs, options_of(Objective::prompt));
  EXPECT_EQ(decode_pairs(sample.ids), "Question: Who was it? Context: It was Ada. Answer:</s>");
  for (size_t t = 0; t + 1 < sample.ids.size(); ++t) EXPECT_EQ(sample.labels[t], sample.ids[t + 1]);
}

TEST(Prompts, AQuestionWithoutAContext) {
  const Example example = question_about("", "Ada");
  for (const auto& [objective, text] : {std::pair{Objective::completion, "Question: Who was it? Answer: Ada</s>"},
                                        {Objective::causal_lm, "Question: Who was it? Answer: Ada</s>"},
                                        {Objective::separate, "Question: Who was it? Answer:"},
                                        {Objective::prompt, "Question: Who was it? Answer:</s>"}}) {
    EXPECT_EQ(decode_pairs(encode_sample(example, by_pairs, options_of(objective)).ids), text);
  }
  EXPECT_EQ(decode_pairs(encode_prompt(example, by_pairs, options_of(Objective::completion))),
            "Question: Who was it? Answer:");
}

TEST(Prompts, APromptIsUsedUnchanged) {
  const Example example = prompt_with_completion("User: hi ->", "hello");
  const Sample sample = encode_sample(example, by_pairs, options_of(Objective::completion));
  EXPECT_EQ(decode_pairs(sample.ids), "User: hi ->hello</s>");
  const size_t prompt = encode_pairs("User: hi ->").size();
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    const bool learned = t + 1 >= prompt && t + 1 < sample.ids.size();
    EXPECT_EQ(sample.labels[t], learned ? sample.ids[t + 1] : kNoTarget) << t;
  }
  const PromptOptions all = options_of(Objective::causal_lm);
  EXPECT_EQ(encode_sample(example, by_pairs, all).ids, sample.ids);
  EXPECT_EQ(decode_pairs(encode_sample(example, by_pairs, options_of(Objective::prompt)).ids), "User: hi -></s>");
  EXPECT_EQ(decode_pairs(encode_prompt(example, by_pairs, all)), "User: hi ->");
}

TEST(Prompts, WithoutAContextNothingCanBeShortened) {
  for (const Example& example :
       {question_about("", "Ada"), prompt_with_completion("Question: Who was it? Answer:", " Ada")}) {
    const auto size = std::ssize(encode_sample(example, by_pairs, options_of(Objective::completion)).ids);
    EncodedRow row = encode_row(example, by_pairs, options_of(Objective::completion, size - 1));
    EXPECT_TRUE(row.samples.empty());
    EXPECT_EQ(row.num_tokens, size);
    EXPECT_THAT(row.fault.what,
                HasSubstr(example.completion() ? "the prompt and completion take " : "the question and answer take "));
    EXPECT_THAT(row.fault.what, ::testing::Not(HasSubstr("context")));
    EXPECT_THAT(row.fault.remedy, HasSubstr("at least " + std::to_string(size)));
    row = encode_row(example, by_pairs, options_of(Objective::completion, size - 1, Truncation::right));
    ASSERT_EQ(row.samples.size(), 1u);
    EXPECT_EQ(std::ssize(row.samples[0].ids), size - 1);
  }
}

TEST(Prompts, WithoutTheEndOfSequenceToken) {
  PromptOptions options = options_of(Objective::completion);
  options.append_eos = false;
  const Sample sample = encode_sample(question_about("It was Ada.", "Ada"), by_pairs, options);
  EXPECT_EQ(decode_pairs(sample.ids), "Question: Who was it? Context: It was Ada. Answer: Ada");
  options.objective = Objective::causal_lm;
  EXPECT_EQ(decode_pairs(encode_sample(plain_text("some words"), by_pairs, options).ids), "some words");
  options.objective = Objective::prompt;
  EXPECT_EQ(decode_pairs(encode_sample(question_about("It was Ada.", "Ada"), by_pairs, options).ids),
            "Question: Who was it? Context: It was Ada. Answer:");
}

TEST(Prompts, SeparatePlacesTheAnswerOverThePromptsEnd) {
  const Sample sample =
      encode_sample(question_about("It was Ada Lovelace.", "Ada Lovelace"), by_pairs, options_of(Objective::separate));
  EXPECT_EQ(decode_pairs(sample.ids), "Question: Who was it? Context: It was Ada Lovelace. Answer:");
  const auto answer = encode_pairs("Ada Lovelace");  // encoded separately from the prompt, without a leading space
  // Before the labels are shifted, the answer's last token is the label of the last position. The shift moves every
  // label one position to the front, because position t predicts the token at t + 1.
  std::vector<int32_t> expected(sample.ids.size(), kNoTarget);
  for (size_t i = 0; i < answer.size(); ++i) expected[sample.ids.size() - answer.size() + i - 1] = answer[i];
  EXPECT_EQ(sample.labels, expected);
}

TEST(Prompts, SeparateKeepsTheEndOfAnAnswerLongerThanThePrompt) {
  const std::string answer(300, 'x');
  const Sample sample = encode_sample(question_about(answer, answer), by_pairs, options_of(Objective::separate, 60));
  EXPECT_EQ(sample.ids.size(), 60u);
  EXPECT_EQ(sample.labels.back(), kNoTarget);
  for (size_t t = 0; t + 1 < 60; ++t) EXPECT_NE(sample.labels[t], kNoTarget) << t;
}

TEST(Prompts, PlainText) {
  const Sample sample = encode_sample(plain_text("some words"), by_pairs, options_of(Objective::causal_lm));
  EXPECT_EQ(decode_pairs(sample.ids), "some words</s>");
  EXPECT_EQ(sample.labels[sample.labels.size() - 2], kEos);
  PromptOptions truncate = options_of(Objective::causal_lm, 3);
  truncate.long_texts = LongTexts::truncate;
  const Sample cut = encode_sample(plain_text("some words"), by_pairs, truncate);
  EXPECT_EQ(decode_pairs(cut.ids), "some w");
  EXPECT_EQ(cut.labels.back(), kNoTarget);
  EXPECT_EQ(encode_sample(plain_text(""), by_pairs, options_of(Objective::causal_lm)).ids, std::vector<int32_t>{kEos});
  EXPECT_THROW(encode_sample(plain_text("x"), by_pairs, options_of(Objective::completion)), UsageError);
  EXPECT_THROW(encode_sample(plain_text("x"), by_pairs, options_of(Objective::separate)), UsageError);
}

// Returns a context of the distinct words w000 … w199.
std::string long_context() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += (i ? " w" : "w") + std::to_string(1000 + i).substr(1);
  return text;
}

TEST(Prompts, ContextIsShortenedAroundTheAnswer) {
  const std::string context = long_context();
  for (const std::string answer : {"w000 w001", "w003", "w100 w101", "00 w101", "w198 w199", "99", "w0"}) {
    const Example example = question_about(context, answer);
    for (const Objective objective : {Objective::completion, Objective::causal_lm}) {
      const Sample sample = encode_sample(example, by_pairs, options_of(objective, 80));
      const std::string text = decode_pairs(sample.ids);
      SCOPED_TRACE(text);
      EXPECT_EQ(sample.ids.size(), 80u);  // as long as max_length allows
      EXPECT_TRUE(text.starts_with("Question: Who was it? Context:"));
      EXPECT_TRUE(text.ends_with(" Answer: " + answer + "</s>"));
      const size_t begin = std::string("Question: Who was it? Context:").size();
      const std::string kept = text.substr(begin, text.rfind(" Answer:") - begin);
      EXPECT_THAT(kept, HasSubstr(answer));
      EXPECT_THAT(" " + context, HasSubstr(kept));
    }
  }
}

TEST(Prompts, TheAnswerStandsInTheMiddleOfTheWindow) {
  const Sample sample =
      encode_sample(question_about(long_context(), "w100 w101"), by_pairs, options_of(Objective::completion, 80));
  const std::string text = decode_pairs(sample.ids);
  const auto before = static_cast<int64_t>(text.find(" w100") - text.find("Context:") - 8);
  const auto behind = static_cast<int64_t>(text.find(" Answer:") - text.find("w101") - 4);
  EXPECT_LE(std::abs(before - behind), 6);  // bytes: about one word, which has 5 bytes with its space
}

TEST(Prompts, ContextThatJustFitsIsComplete) {
  const Example example = question_about(long_context(), "w150");
  const auto full = encode_sample(example, by_pairs, options_of(Objective::completion, 10000));
  const int64_t size = std::ssize(full.ids);
  EXPECT_EQ(encode_sample(example, by_pairs, options_of(Objective::completion, size)).ids, full.ids);
  const auto shorter = encode_sample(example, by_pairs, options_of(Objective::completion, size - 1));
  EXPECT_EQ(std::ssize(shorter.ids), size - 1);
  EXPECT_EQ(encode_prompt(example, by_pairs, options_of(Objective::completion, 10000)),
            encode_pairs(prompt_text(example.question()->question, example.question()->context)));
}

TEST(Prompts, AnswerInAContextWithoutAnySpace) {
  std::string context;
  for (int i = 0; i < 400; ++i) context += static_cast<char>('a' + i % 23);
  context.replace(250, 4, "GOAL");
  const Sample sample = encode_sample(question_about(context, "GOAL"), by_pairs, options_of(Objective::completion, 60));
  const std::string text = decode_pairs(sample.ids);
  EXPECT_THAT(text.substr(0, text.find(" Answer:")), HasSubstr("GOAL"));
}

TEST(Prompts, WithoutAKnownAnswerTheBeginningIsKept) {
  const Example example = question_about(long_context(), "w150");
  PromptOptions options = options_of(Objective::completion, 60);
  const std::string prompt = decode_pairs(encode_prompt(example, by_pairs, options));
  EXPECT_THAT(prompt, HasSubstr("Context: w000 w001"));
  EXPECT_TRUE(prompt.ends_with(" Answer:"));
  EXPECT_EQ(encode_prompt(example, by_pairs, options).size(), 60u);

  options.around_answer = false;
  const std::string evaluated = decode_pairs(encode_sample(example, by_pairs, options).ids);
  EXPECT_THAT(evaluated, HasSubstr("Context: w000 w001"));
  EXPECT_TRUE(evaluated.ends_with(" Answer: w150</s>"));

  options.around_answer = true;
  const Example unanswerable = question_about(long_context(), kNoAnswer);
  EXPECT_THAT(decode_pairs(encode_sample(unanswerable, by_pairs, options).ids), HasSubstr("Context: w000 w001"));
}

TEST(Prompts, QuestionAndAnswerThatDoNotFit) {
  const Example example = question_about(long_context(), "w150");
  const auto without_context = std::ssize(encode_pairs("Question: Who was it? Context: Answer: w150")) + 1;
  EXPECT_EQ(decode_pairs(encode_sample(example, by_pairs, options_of(Objective::completion, without_context)).ids),
            "Question: Who was it? Context: Answer: w150</s>");
  try {
    encode_sample(example, by_pairs, options_of(Objective::completion, without_context - 1));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("f.json:7: "));
    EXPECT_THAT(error.what(), HasSubstr("max_length"));
    EXPECT_THAT(error.what(), HasSubstr("\"q1\""));
    EXPECT_THAT(error.what(), HasSubstr("at least " + std::to_string(without_context)));
  }
  EXPECT_THROW(encode_prompt(example, by_pairs, options_of(Objective::completion, 5)), UsageError);
}

TEST(Prompts, TruncationRightCutsTheRow) {
  const Example example = question_about(long_context(), "w150");
  auto complete = encode_pairs(prompt_text(example.question()->question, example.question()->context) + " w150");
  complete.push_back(kEos);
  const auto prompt = std::ssize(complete) - std::ssize(encode_pairs(" w150")) - 1;
  for (const int64_t length : {int64_t{1}, int64_t{40}, prompt, prompt + 1}) {
    const Sample sample =
        encode_sample(example, by_pairs, options_of(Objective::completion, length, Truncation::right));
    EXPECT_EQ(sample.ids, std::vector<int32_t>(complete.begin(), complete.begin() + length));
    if (length <= prompt)
      EXPECT_THAT(sample.labels, Each(kNoTarget));
    else
      EXPECT_EQ(sample.labels[static_cast<size_t>(prompt) - 1], complete[static_cast<size_t>(prompt)]);
  }
  EXPECT_EQ(encode_prompt(example, by_pairs, options_of(Objective::completion, 40, Truncation::right)),
            std::vector<int32_t>(complete.begin(), complete.begin() + 40));
}

TEST(Prompts, ManyOnThreadsInOrder) {
  std::vector<Example> examples;
  for (int i = 0; i < 100; ++i) examples.push_back(question_about("It was " + std::to_string(i), std::to_string(i)));
  ThreadPool pool(3);
  const auto options = options_of(Objective::completion);
  const auto rows = encode_rows(examples, by_pairs, options, pool);
  ASSERT_EQ(rows.size(), examples.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].samples.at(0).ids, encode_sample(examples[i], by_pairs, options).ids);
  }
  examples[57] = plain_text("x");
  EXPECT_THROW(encode_rows(examples, by_pairs, options, pool), UsageError);
}

std::vector<std::string> texts_of(const std::vector<Sample>& samples) {
  std::vector<std::string> texts;
  for (const Sample& sample : samples) texts.push_back(decode_pairs(sample.ids));
  return texts;
}

TEST(LongTexts, SplitTruncateAndSkip) {
  const Example text = plain_text("aa bb cc dd");  // tokens: "aa" " b" "b" " c" "c" " d" "d", and the end token
  const auto row_of = [&](LongTexts long_texts, int64_t max_length) {
    PromptOptions options = options_of(Objective::causal_lm, max_length);
    options.long_texts = long_texts;
    return encode_row(text, by_pairs, options);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(texts_of(row_of(LongTexts::split, 3).samples), ElementsAre("aa bb", " cc d", "d</s>"));
  EXPECT_THAT(texts_of(row_of(LongTexts::split, 8).samples), ElementsAre("aa bb cc dd</s>"));
  // The end token alone would be a sample without a target. The last sample therefore also has the token before it.
  EXPECT_THAT(texts_of(row_of(LongTexts::split, 7).samples), ElementsAre("aa bb cc d", "d</s>"));
  EXPECT_THAT(texts_of(row_of(LongTexts::split, 2).samples), ElementsAre("aa b", "b c", "c d", "d</s>"));
  EXPECT_THAT(texts_of(row_of(LongTexts::truncate, 7).samples), ElementsAre("aa bb cc dd"));
  EXPECT_THAT(texts_of(row_of(LongTexts::truncate, 8).samples), ElementsAre("aa bb cc dd</s>"));
  EXPECT_TRUE(row_of(LongTexts::skip, 7).samples.empty());
  EXPECT_EQ(row_of(LongTexts::skip, 7).num_tokens, 8);
  EXPECT_EQ(row_of(LongTexts::skip, 7).fault.what, "");
  EXPECT_THAT(texts_of(row_of(LongTexts::skip, 8).samples), ElementsAre("aa bb cc dd</s>"));
}

constexpr int32_t kBos = 5;

// Imitates a tokenizer that puts BOS before a text.
std::vector<int32_t> with_bos(TextPlace place, std::string_view text) {
  std::vector<int32_t> ids = encode_pairs(text);
  if (place == TextPlace::start) ids.insert(ids.begin(), kBos);
  return ids;
}

TEST(Bos, StandsOnceAtTheStartOfEveryPrompt) {
  const Example example = question_about(long_context(), "w150");
  for (const auto objective : {Objective::completion, Objective::causal_lm, Objective::separate, Objective::prompt}) {
    for (const int64_t length : {60, 10000}) {
      const PromptOptions options = options_of(objective, length);
      const Sample sample = encode_sample(example, with_bos, options);
      EXPECT_EQ(sample.ids.front(), kBos);
      EXPECT_EQ(std::count(sample.ids.begin(), sample.ids.end(), kBos), 1);
      EXPECT_EQ(std::count(sample.labels.begin(), sample.labels.end(), kBos), 0);
      EXPECT_LE(std::ssize(sample.ids), length);
      const auto prompt = encode_prompt(example, with_bos, options);
      EXPECT_EQ(prompt.front(), kBos);
      EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kBos), 1);
      EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEos), 0);
    }
  }
  const Sample complete = encode_sample(example, with_bos, options_of(Objective::completion, 10000));
  auto expected =
      with_bos(TextPlace::start, prompt_text(example.question()->question, example.question()->context) + " w150");
  expected.push_back(kEos);
  EXPECT_EQ(complete.ids, expected);
}

TEST(Bos, BeginsTheFirstPieceOfALongText) {
  const auto samples = encode_row(plain_text("aa bb cc dd"), with_bos, options_of(Objective::causal_lm, 4)).samples;
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].ids.front(), kBos);
  for (const size_t piece : {1, 2}) EXPECT_THAT(samples[piece].ids, testing::Not(testing::Contains(kBos)));
}

TEST(Bos, StaysWhenAPlainPromptIsCut) {
  const auto prompt = [](int64_t length) {
    return encode_prompt(plain_text("aa bb cc dd"), with_bos, options_of(Objective::causal_lm, length));
  };
  auto expected = encode_pairs(" dd");
  expected.insert(expected.begin(), kBos);
  EXPECT_EQ(prompt(3), expected);
  EXPECT_EQ(prompt(1), std::vector<int32_t>{kBos});
  EXPECT_EQ(prompt(8), with_bos(TextPlace::start, "aa bb cc dd"));
}

}  // namespace
}  // namespace tessera
