// The answers of questions: their spellings, their positions, and questions without an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reading.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Answers, UnanswerableQuestions) {
  const auto examples = read(squad("Ada met Bob.", R"({"question": "1", "answers": [], "is_impossible": true},
      {"question": "2", "is_impossible": true}, {"question": "3", "answers": []},
      {"question": "4", "answers": {"text": [], "answer_start": []}}, {"question": "5", "answers": {"text": []}},
      {"question": "6", "answers": null}, {"question": "7", "answers": [], "is_impossible": false},
      {"question": "8", "answers": [{"text": "", "answer_start": 0}], "is_impossible": true},
      {"question": "9", "answers": {"text": ["No Answer"]}, "is_impossible": true},
      {"question": "10", "answers": [], "is_impossible": true,
       "plausible_answers": [{"text": "Bob", "answer_start": 8}]})"));
  ASSERT_EQ(examples.size(), 10u);
  for (const Example& example : examples) {
    EXPECT_THAT(example.question()->answers, IsEmpty());
    EXPECT_FALSE(example.question()->answerable);
    EXPECT_EQ(example.question()->answer_start, -1);
  }
  // A file may also give the text. The run compares it with --unanswerable-text.
  const auto text = read(squad("Ada met Bob.", R"({"question": "1", "answers": [{"text": "No Answer"}]})"));
  EXPECT_THAT(text[0].question()->answers, ElementsAre("No Answer"));
  EXPECT_FALSE(text[0].question()->answerable);
}

TEST(Answers, AnImpossibleQuestionWithAnAnswer) {
  EXPECT_THAT(
      refusal(squad("Ada met Bob.", R"({"question": "1", "answers": [{"text": "Bob"}], "is_impossible": true})")),
      HasSubstr("qas[0]: is_impossible is true, but the question has the answer \"Bob\". Remove the answers, or"));
  EXPECT_THAT(refusal(R"({"context": "Ada", "question": "1", "answers": {"text": ["Ada"]}, "is_impossible": true})"),
              HasSubstr("is_impossible is true"));
}

// Every spelling of "no answer" that files have.
TEST(Answers, AnswersThatMeanNone) {
  for (const std::string value :
       {"null", "[]", R"("")", R"(" \n")", R"([""])", "[null]", R"(["", ""])", R"({"text": []})", R"({"text": ""})",
        R"({"text": null})", R"({"text": [""]})", R"({"text": [null]})", R"({"text": [""], "answer_start": [-1]})",
        R"({"text": [""], "answer_start": []})", R"({"text": "", "answer_start": 0})",
        R"({"text": null, "answer_start": null})", R"([{"text": ""}])", R"([{"text": "", "answer_start": 0}])",
        R"([{"text": [" "]}])"}) {
    for (const std::string key : {"answers", "answer"}) {
      for (const std::string more :
           {"", ", \"is_impossible\": true", ", \"is_impossible\": 0", ", \"context\": \"c\""}) {
        const std::string row = R"({"question": "q", ")" + key + "\": " + value + more + "}";
        SCOPED_TRACE(row);
        const auto examples = read(row);
        EXPECT_THAT(examples.at(0).question()->answers, IsEmpty());
        EXPECT_FALSE(examples[0].question()->answerable || examples[0].question()->free_answer);
      }
    }
  }
  for (const std::string value : {R"(["Ada", ""])", R"({"text": [" ", "Ada"]})", R"([{"text": "Ada"}, null])"}) {
    EXPECT_THAT(refusal(R"({"question": "q", "answers": )" + value + "}"),
                HasSubstr("one answer is empty, and another answer is not. Remove the empty answer"));
  }
}

TEST(Answers, SpellingsOfAnAnswer) {
  for (const std::string value :
       {R"("Bob")", R"(["Bob"])", R"({"text": "Bob"})", R"({"text": ["Bob"]})", R"({"text": "Bob", "answer_start": 8})",
        R"({"text": ["Bob"], "answer_start": 8.0})", R"({"text": "Bob", "answer_start": [8]})",
        R"([{"text": "Bob", "answer_start": null}])", R"([{"text": ["Bob"], "answer_start": [8]}])"}) {
    for (const std::string more : {"", R"(, "is_impossible": false)", R"(, "is_impossible": "False")",
                                   R"(, "answer": null)", R"(, "answer": "Bob")", R"(, "answer": {"text": ["Bob"]})"}) {
      const std::string row = R"({"context": "Ada met Bob.", "question": "q", "answers": )" + value + more + "}";
      SCOPED_TRACE(row);
      const auto examples = read(row);
      EXPECT_THAT(examples.at(0).question()->answers, ElementsAre("Bob"));
      EXPECT_EQ(examples[0].question()->answer_start, 8);
    }
  }
  for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
           {"3", "answers: an answer must be a string, found 3. Write it as a string: \"3\""},
           {"true", "answers: an answer must be a string, found true"},
           {"[[\"a\"]]", "answers[0]: an answer must be a string, found an array"},
           {"{}", "answers: key \"text\" is missing"},
           {"{\"text\": 3}", "answers.text: an answer must be a string, found 3"},
           {R"({"text": "c", "answer_start": "0"})",
            "answers.answer_start: must be a whole number, found the string \"0\""}}) {
    EXPECT_THAT(refusal(R"({"question": "q", "answers": )" + value + "}"), HasSubstr(message));
  }
}

TEST(Answers, BothAnswerAndAnswers) {
  // One of them may lack the position.
  EXPECT_EQ(
      read(R"({"context": "b b", "question": "q", "answer": {"text": "b", "answer_start": 2}, "answers": "b"})")[0]
          .question()
          ->answer_start,
      2);
  for (const auto& [answers, answer, words] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {R"(["sea"])", R"("lake")", R"("sea" and "lake")"},
           {R"(["sea", "lake"])", R"("sea")", R"("sea", "lake" and "sea")"},
           {R"({"text": ["sea"]})", "[]", R"("sea" and no answer)"},
           {"[]", R"("sea")", R"(no answer and "sea")"},
           {R"([{"text": "s", "answer_start": 0}])", R"({"text": "s", "answer_start": 2})",
            R"("s" at 0 and "s" at 2)"}}) {
    EXPECT_THAT(
        refusal(R"({"context": "s s", "question": "q", "answers": )" + answers + ", \"answer\": " + answer + "}"),
        HasSubstr("f.json: \"answers\" and \"answer\" differ: " + words + ". Remove one of the two keys"));
  }
}

TEST(Answers, SpellingsOfIsImpossible) {
  const auto row = [](const std::string& value) {
    return R"({"question": "q", "is_impossible": )" + value + R"(, "answer": "a"})";
  };
  for (const std::string value : {"true", "1", "1.0", R"("true")", R"("True")", R"("1")"}) {
    EXPECT_THAT(refusal(row(value)), HasSubstr("is_impossible is true, but the question has the answer \"a\""))
        << value;
    EXPECT_THAT(read(R"({"question": "q", "is_impossible": )" + value + "}").at(0).question()->answers, IsEmpty());
  }
  for (const std::string value : {"false", "0", "0.0", "null", R"("false")", R"("FALSE")", R"("0")"}) {
    EXPECT_THAT(read(row(value)).at(0).question()->answers, ElementsAre("a")) << value;
    EXPECT_THAT(refusal(R"({"question": "q", "is_impossible": )" + value + "}"), HasSubstr("\"answers\" is missing"));
  }
  for (const std::string value : {"2", R"("maybe")", R"("")", "[true]", "{}"}) {
    EXPECT_THAT(refusal(row(value)), HasSubstr("\"is_impossible\" must be true or false, found ")) << value;
  }
}

TEST(Answers, AnswerStartCountsCodePoints) {
  // "é", "中" and "😀" take two, three and four bytes. The second text writes the same characters as escapes.
  EXPECT_EQ(read(squad("é中😀 x", question("x", 4)))[0].question()->answer_start, 10);
  EXPECT_EQ(read(squad("\\u00e9\\u4e2d\\ud83d\\ude00 x", question("x", 4)))[0].question()->answer_start, 10);
  // CodePoints stores the byte offset of every 64th code point. These answers start after several stored offsets.
  std::string context;
  for (int i = 0; i < 200; ++i) context += "é";
  EXPECT_EQ(read(squad(context + "x" + context + "x", question("x", 401)))[0].question()->answer_start, 801);
  EXPECT_EQ(read(squad(context + "x" + context + "x", question("x", 200)))[0].question()->answer_start, 400);
}

TEST(Answers, AMisplacedAnswerIsTheNearestOccurrence) {
  // offsets of the words:     0   4   8   12
  const std::string context = "aba bbb aba ccc";
  EXPECT_EQ(read(squad(context, question("aba", 0)))[0].question()->answer_start, 0);
  EXPECT_EQ(read(squad(context, question("aba", 3)))[0].question()->answer_start, 0);
  EXPECT_EQ(read(squad(context, question("aba", 5)))[0].question()->answer_start, 8);
  EXPECT_EQ(read(squad(context, question("aba", 4)))[0].question()->answer_start,
            0);  // both words are 4 away: the first counts
  EXPECT_EQ(read(squad(context, question("aba", 999999)))[0].question()->answer_start, 8);
  EXPECT_EQ(read(squad(context, question("aba", -5)))[0].question()->answer_start, 0);
  EXPECT_EQ(read(squad("ababab", question("abab", 1)))[0].question()->answer_start,
            0);  // two overlapping occurrences, both 1 away
  EXPECT_EQ(read(squad("xabababab", question("bab", 5)))[0].question()->answer_start, 4);
}

TEST(Answers, FreeAnswers) {
  const auto examples = read(R"({"context": "Ada met Bob.", "question": "1", "answers": {"text": ["Eve", "Ada"]}}
{"context": "Ada met Bob.", "question": "2", "answers": {"text": ["Eve"], "answer_start": [-1]}}
{"context": "Ada met Bob.", "question": "3", "answer": "Bob"}
{"question": "4", "answer": "Eve"}
{"context": null, "question": "5", "answers": ["Eve", "Ada"]}
{"context": "", "question": "6", "answers": []})");
  ASSERT_EQ(examples.size(), 6u);
  const std::vector<bool> free = {true, true, false, false, false, false};
  for (size_t i = 0; i < examples.size(); ++i) {
    EXPECT_EQ(examples[i].question()->question, std::to_string(i + 1));
    EXPECT_EQ(examples[i].question()->context.empty(), i >= 3);
    EXPECT_EQ(examples[i].question()->answerable, i == 2);
    EXPECT_EQ(examples[i].question()->free_answer, free[i]);
    if (i < 5) {
      EXPECT_EQ(examples[i].question()->answers.at(0), i == 2 ? "Bob" : "Eve");
    }
  }
  EXPECT_THAT(examples[0].question()->answers, ElementsAre("Eve", "Ada"));
  EXPECT_TRUE(examples[5].question()->answers.empty());
  EXPECT_THAT(refusal(R"({"question": "q", "answers": {"text": ["Eve"], "answer_start": [3]}})"),
              HasSubstr("has an answer_start, but no \"context\""));
  EXPECT_THAT(refusal(R"({"question": "q", "answer": ["a", 3]})"),
              HasSubstr("answer[1]: an answer must be a string, found 3"));
}

TEST(Answers, AnswersThatAreNotInTheContext) {
  EXPECT_THAT(refusal(squad("Ada met Bob.", question("Eve", 8))),
              HasSubstr("f.json: data[0].paragraphs[0].qas[0]: the answer \"Eve\" does not occur in the context"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n\n{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [\"d\"], "
                      "\"answer_start\": [0]}}"),
              HasSubstr("f.json:3: the answer \"d\" does not occur"));
  EXPECT_THAT(refusal(squad("Ada", question("Ada Lovelace", 0))), HasSubstr("does not occur"));
}

}  // namespace
}  // namespace tessera
