#include "tessera/data/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "reading.h"
#include "tessera/data/numpy_permutation.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Examples, SquadWithSeveralAnswers) {
  const auto examples = read(squad("Ada met Bob.", R"({"id": "x", "question": "Who?", "answers": [
      {"text": "Bob", "answer_start": 8}, {"text": "Bob.", "answer_start": 8}]},
      {"id": "y", "question": "Who met?", "answers": [{"text": "Ada", "answer_start": 0}]})"));
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].id, "x");
  EXPECT_EQ(examples[0].question()->question, "Who?");
  EXPECT_EQ(examples[0].question()->context, "Ada met Bob.");
  EXPECT_THAT(examples[0].question()->answers, ElementsAre("Bob", "Bob."));
  EXPECT_EQ(examples[0].question()->answer_start, 8);
  EXPECT_TRUE(examples[0].question()->answerable);
  EXPECT_FALSE(examples[0].text());
  EXPECT_EQ(examples[1].question()->answer_start, 0);
}

TEST(Examples, RowsInAllThreeForms) {
  const std::string one = R"({"id": 7, "context": "Ada met Bob.", "question": "Who?", "answers": {"text": ["Bob"], )"
                          R"("answer_start": [8]}})";
  const std::string two = R"({"context": "B Bob", "question": "Who?", "answers": {"text": ["Bob", "B"]}})";
  for (const std::string& content :
       {"[" + one + ",\n" + two + "]", one + "\n" + two, "\n" + one + "\r\n\n" + two + "\n"}) {
    const auto examples = read(content);
    ASSERT_EQ(examples.size(), 2u) << content;
    EXPECT_EQ(examples[0].id, "7");
    EXPECT_EQ(examples[0].question()->answer_start, 8);
    EXPECT_EQ(examples[1].id, "");
    EXPECT_EQ(examples[1].question()->answer_start, 2);
    EXPECT_THAT(examples[1].question()->answers, ElementsAre("Bob", "B"));
  }
  EXPECT_EQ(read(one).size(), 1u);
  EXPECT_EQ(read("\xEF\xBB\xBF" + one + "\n" + two).size(), 2u);  // a byte order mark
}

TEST(Examples, PlainTexts) {
  const auto examples = read("{\"text\": \"first\", \"meta\": {\"n\": [1]}}\n{\"text\": \"\"}\n");
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].text()->text, "first");
  EXPECT_EQ(examples[1].text()->text, "");
  EXPECT_FALSE(examples[0].question() || examples[0].completion());
  EXPECT_EQ(read("[{\"text\": \"é\"}]")[0].text()->text, "é");
}

TEST(Examples, PromptsWithCompletions) {
  const auto examples = read(
      "{\"prompt\": \"a:\", \"completion\": \" b\", \"id\": 3, \"question\": null}\n"
      "{\"text\": \"c\", \"prompt\": \"d\", \"completion\": \"e\"}");
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(examples[0].completion()->prompt, "a:");
  EXPECT_EQ(examples[0].completion()->completion, " b");
  EXPECT_EQ(examples[0].id, "3");
  EXPECT_FALSE(examples[0].text() || examples[0].question());
  EXPECT_EQ(examples[1].text()->text, "c");  // the first format in the order of read_row()
  EXPECT_THAT(refusal(R"({"prompt": "a"})"), HasSubstr("key \"completion\" is missing"));
  EXPECT_THAT(refusal(R"({"completion": "a"})"), HasSubstr("key \"prompt\" is missing"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": ""})"), HasSubstr("\"completion\" is the empty string"));
  EXPECT_THAT(refusal(R"({"prompt": "", "completion": "a"})"), HasSubstr("\"prompt\" is the empty string"));
}

TEST(Examples, RowsBelowData) {
  const auto examples = read(R"({"version": 1, "data": [{"text": "a"}, {"question": "q", "answer": "b"},
      {"paragraphs": [{"context": "c", "qas": [{"question": "d", "answers": []}]}]}]})");
  ASSERT_EQ(examples.size(), 3u);
  EXPECT_EQ(examples[0].place, "f.json: data[0]");
  EXPECT_EQ(examples[1].question()->question, "q");
  EXPECT_EQ(examples[2].place, "f.json: data[2].paragraphs[0].qas[0]");
}

TEST(Examples, NotJson) {
  EXPECT_THAT(refusal("hello"), HasSubstr("f.json:1:1: not valid JSON: syntax error"));
  EXPECT_THAT(refusal("{'a': 1}"), HasSubstr("f.json:1:2: "));
  EXPECT_THAT(refusal("{\"data\": [\n{\"paragraphs\": oops}\n]}"), HasSubstr("f.json: data[0]: not valid JSON: "));
  EXPECT_THAT(refusal("{\"data\": [\n{\"paragraphs\": [oops}\n]}"), HasSubstr("f.json:2:17: "));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal(" \n\t "), HasSubstr("empty"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n{\"text\": 1e999}"), HasSubstr("f.json:2:14: not valid JSON"));
  EXPECT_THAT(refusal("{\"text\": \"\\ud800\"}"), HasSubstr("not valid JSON"));
}

TEST(Examples, TruncatedAtEveryByte) {
  const std::string complete = squad("Ada met Bob.", question("Bob", 8));
  for (size_t size = 1; size < complete.size(); ++size) {
    EXPECT_THAT(refusal(complete.substr(0, size)), HasSubstr("cut short")) << size;
  }
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n{\"text\": \"b"), HasSubstr("f.json:2:12: not valid JSON"));
}

TEST(Examples, WrongKeysAndTypesNameTheirPlace) {
  EXPECT_THAT(refusal("{\"data\": 5}"), HasSubstr("f.json: \"data\" must be an array, found 5"));
  EXPECT_THAT(refusal("{\"rows\": []}"), HasSubstr("no known key. Its keys: \"rows\""));
  EXPECT_THAT(refusal("[1]"), HasSubstr("f.json: [0]: expected an object, found 1"));
  EXPECT_THAT(refusal("{\"text\": 1}"), HasSubstr("\"text\" must be a string, found 1"));
  EXPECT_THAT(refusal("{}"), HasSubstr("the row has no key"));
  EXPECT_THAT(refusal("5"), HasSubstr("expected an object, found 5"));
  EXPECT_THAT(refusal("{\"data\": [{}]}"), HasSubstr("f.json: data[0]: the row has no key"));
  EXPECT_THAT(refusal("{\"data\": [{\"text\": \"a\"}, {\"paragraphs\": 3}]}"),
              HasSubstr("f.json: data[1]: \"paragraphs\" must be an array, found 3"));
  EXPECT_THAT(refusal(squad("c", "{}")), HasSubstr("data[0].paragraphs[0].qas[0]: key \"question\" is missing"));
  EXPECT_THAT(refusal(squad("c", R"({"question": "q"})")), HasSubstr("qas[0]: key \"answers\" is missing"));
  EXPECT_THAT(refusal(squad("c", R"({"question": "q", "answers": 3})")),
              HasSubstr("qas[0].answers: an answer must be a string, found 3"));
  EXPECT_THAT(refusal(squad("c", R"({"question": "q", "answers": [{"text": "c", "answer_start": 0.5}]})")),
              HasSubstr("qas[0].answers[0].answer_start: must be a whole number, found 0.5"));
  EXPECT_THAT(refusal(squad("c", R"({"question": "q", "id": [], "answers": []})")), HasSubstr("\"id\""));
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [3]}}"),
              HasSubstr("f.json:2: answers.text[0]: an answer must be a string, found 3"));
  EXPECT_THAT(refusal(R"({"context": "c", "question": "q", "answers": {"text": ["c"], "answer_start": []}})"),
              HasSubstr("text and answer_start have different lengths: 1 and 0"));
}

TEST(Examples, NoExamples) {
  EXPECT_THAT(refusal("{\"data\": []}"), HasSubstr("the data set is empty"));
  EXPECT_THAT(refusal("[]"), HasSubstr("the data set is empty"));
  EXPECT_THAT(refusal(squad("c", "")), HasSubstr("the data set is empty"));
}

TEST(Examples, BadRowsAreSeparatedFromValidRows) {
  const ExampleRows lines = rows_from_text(
      "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n\n{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": "
      "[\"d\"], \"answer_start\": [0]}}\n{\"text\": \"e\", \"id\": 5}\n7",
      "f.jsonl");
  ASSERT_EQ(lines.examples.size(), 2u);
  EXPECT_EQ(lines.examples[0].place, "f.jsonl:1");
  EXPECT_EQ(lines.examples[1].place, "f.jsonl:5");
  ASSERT_EQ(lines.bad.size(), 3u);
  EXPECT_EQ(lines.bad[0].place, "f.jsonl:2");
  EXPECT_THAT(lines.bad[0].what, HasSubstr("no known key. Its keys: \"txt\""));
  EXPECT_EQ(lines.bad[1].place, "f.jsonl:4");
  EXPECT_THAT(lines.bad[1].what, HasSubstr("does not occur"));
  EXPECT_EQ(lines.bad[2].place, "f.jsonl:6");

  const ExampleRows squads = rows_from_text(
      R"({"data": [3, {"paragraphs": [{"qas": []}, {"context": "Ada", "qas": [{"question": "1"},
         {"id": "x", "question": "2", "answers": [{"text": "Ada", "answer_start": 0}]}]}]}]})",
      "f.json");
  ASSERT_EQ(squads.examples.size(), 1u);
  EXPECT_EQ(squads.examples[0].id, "x");
  EXPECT_EQ(squads.examples[0].place, "f.json: data[1].paragraphs[1].qas[1]");
  ASSERT_EQ(squads.bad.size(), 3u);
  EXPECT_EQ(squads.bad[0].place, "f.json: data[0]");
  EXPECT_EQ(squads.bad[1].place, "f.json: data[1].paragraphs[0]");
  EXPECT_EQ(squads.bad[2].place, "f.json: data[1].paragraphs[1].qas[0]");
  EXPECT_EQ(rows_from_text("{\"data\": 5}", "f.json").bad.size(), 1u);
}

TEST(Examples, InvalidUtf8NamesTheByte) {
  EXPECT_THAT(refusal("{\"text\": \"ab\xFF\"}"), HasSubstr("f.json:1:13: invalid UTF-8: byte 0xFF"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n{\"text\": \"\xC3\"}"), HasSubstr("f.json:2:11: invalid UTF-8: byte 0xC3"));
  EXPECT_THAT(refusal("{\"text\": \"\xED\xA0\x80\"}"), HasSubstr("invalid UTF-8"));  // a surrogate
  EXPECT_THAT(refusal("{\"text\": \"a\"}\xE2\x82"), HasSubstr("invalid UTF-8"));     // the last character is incomplete
}

TEST(Examples, HostileNestingAndRepetition) {
  refusal(std::string(2'000'000, '['));
  std::string deep = "{\"text\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_THAT(refusal(deep), HasSubstr("nested deeper than 64 levels"));
  // At every letter of this long context, a naive search would compare almost the complete long answer.
  const std::string context(400'000, 'a');
  EXPECT_THAT(refusal(squad(context, question(std::string(200'000, 'a') + "b", 3))), HasSubstr("does not occur"));
  // A file of less than 2 MB: one context of 1 MB and 20,000 questions. A copy of the context for each question would
  // take 20 GB.
  std::string questions;
  for (int i = 0; i < 20'000; ++i) questions += (i ? "," : "") + std::string(R"({"question": "", "answers": []})");
  EXPECT_THAT(refusal(squad(std::string(1'000'000, 'a'), questions)),
              HasSubstr("were copied for questions and searched for misplaced answers"));
}

class ExamplesFile : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("tessera_examples_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string refusal_of(const std::filesystem::path& path) {
    try {
      load_examples({path.string()});
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::filesystem::path directory_;
};

TEST_F(ExamplesFile, Loads) {
  const auto path = directory_ / "rows.jsonl";
  std::ofstream(path) << "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const auto other = directory_ / "document.txt";
  std::ofstream(other) << "\xEF\xBB\xBFthree\n\nfour\r\n";
  const auto examples = load_examples({path.string(), other.string(), path.string()});
  ASSERT_EQ(examples.size(), 5u);
  EXPECT_EQ(examples[1].text()->text, "two");
  EXPECT_EQ(examples[1].place, path.string() + ":2");
  EXPECT_EQ(examples[2].text()->text, "three\n\nfour\r\n");
  EXPECT_EQ(examples[2].place, other.string());
  EXPECT_EQ(examples[4].place, path.string() + ":2");
  const auto lines = load_examples({other.string()}, {.text_rows = TextRows::line});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text()->text, "four");
  EXPECT_EQ(lines[1].place, other.string() + ":3");
}

TEST_F(ExamplesFile, MissingFileDirectoryAndDevice) {
  EXPECT_THAT(refusal_of(directory_ / "none.json"), HasSubstr("none.json: no such file"));
  EXPECT_THAT(refusal_of(directory_), HasSubstr("is a folder"));
  EXPECT_THAT(refusal_of("/dev/zero"), HasSubstr("not a regular file"));
  std::ofstream(directory_ / "empty.json");
  EXPECT_THAT(refusal_of(directory_ / "empty.json"), HasSubstr("the file is empty"));
}

// Files that people have in place of data: the error names the file, and a command that gets or converts the data.
TEST_F(ExamplesFile, OtherKindsOfFiles) {
  using namespace std::string_literals;
  const std::vector<std::tuple<std::string, std::string, std::string>> files = {
      {"a.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "Git LFS pointer"},
      {"a.parquet", "PAR1\x15\x04", "is a Parquet file, which Tessera does not read. Convert it: python3 -c"},
      {"data.json", "PAR1\x15\x04", "is a Parquet file"},
      {"a.feather", "ARROW1\0\0"s, "is an Arrow file"},
      {"a.arrow", "\xFF\xFF\xFF\xFF\x10\0\0\0"s, "is an Arrow file"},
      {"a.jsonl.gz", "\x1F\x8B\x08", "Convert it: gzip -dc "},
      {"a.jsonl.zst", "\x28\xB5\x2F\xFD", "Convert it: zstd -dc "},
      {"a.jsonl.xz",
       "\xFD"
       "7zXZ\0"s,
       "Convert it: xz -dc "},
      {"a.jsonl.bz2", "BZh9", "Convert it: bzip2 -dc "},
      {"a.zip", "PK\x03\x04", "Convert it: unzip "},
      {"a.xlsx", "PK\x03\x04", "is a spreadsheet"},
      {"a.tar", std::string(257, 'a') + "ustar\0"s, "Unpack it: tar xf "},
      {"a.csv", "question,answer\nq,a\n", "is a CSV file"},
      {"A.TSV", "question\tanswer\nq\ta\n", "is a TSV file"},
      {"a.jsonl", "\xFF\xFE{\0"s, "a.new.jsonl"},
      {"a.txt", "\xFE\xFF\0a"s, "is UTF-16 text, which Tessera does not read. Convert it: iconv -f UTF-16 -t UTF-8 "},
      {"a.json", "\n<!DOCTYPE html><html>", "is an HTML page"},
      {"a.txt", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "has rows as JSON, but its name ends with .txt"},
      {"a.txt", "[{\"question\": \"a\"}]", "has rows as JSON, but its name ends with .txt"},
      {"a.txt", "{\n\"data\": []}", "has rows as JSON, but its name ends with .txt"},
      {"a.txt", " \n", "the file is empty"},
      {"a.txt", "a\n\xC3", "a.txt:2:1: invalid UTF-8: byte 0xC3"},
      {"a.txt", "a\0b"s, "contains a zero byte"},
  };
  for (const auto& [name, content, message] : files) {
    SCOPED_TRACE(message);
    const auto path = directory_ / name;
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_THAT(refusal_of(path), AllOf(HasSubstr(path.string()), HasSubstr(message)));
    std::filesystem::remove(path);
  }
  // The content decides, except for .txt.
  std::ofstream(directory_ / "rows.csv") << "{\"text\": \"one\"}\n";
  EXPECT_EQ(load_examples({(directory_ / "rows.csv").string()}).size(), 1u);
  // Names that are no files.
  const std::string in_folder = refusal_of(directory_);
  EXPECT_THAT(in_folder, HasSubstr("is a folder, not a file. Each of these files is a CSV file"));
  std::ofstream(directory_ / "train set.jsonl") << "{\"text\": \"one\"}\n";
  EXPECT_THAT(refusal_of(directory_), HasSubstr("is a folder, not a file. Give one or more of its files: '"));
  EXPECT_THAT(refusal_of("squad"),
              HasSubstr("squad: no such file. To get a data set of this name from the Hugging Face "
                        "hub: hf download squad --repo-type dataset --local-dir squad"));
  EXPECT_THAT(refusal_of("no_such_org/data-1.1"), HasSubstr("hf download no_such_org/data-1.1 --repo-type dataset"));
  EXPECT_THAT(refusal_of("https://huggingface.co/datasets/org/data"), HasSubstr("hf download org/data --repo-type"));
  EXPECT_THAT(refusal_of("https://example.org/a.jsonl"), HasSubstr("curl -LO https://example.org/a.jsonl"));
  EXPECT_THAT(refusal_of("/dev/null,/dev/zero"),
              HasSubstr("Give several files as several words: /dev/null /dev/zero."));
  for (const char* path : {"none.parquet", "none/a/b", "./none", "/none", "none/"}) {
    EXPECT_THAT(refusal_of(path), HasSubstr("no such file. Give the path of a JSON or JSONL file")) << path;
  }
}

std::vector<std::string> ids_of(const std::vector<Example>& examples) {
  std::vector<std::string> ids;
  for (const Example& example : examples) ids.push_back(example.id);
  return ids;
}

TEST(SelectExamples, SeededShuffleThenTheFirst) {
  std::vector<Example> examples(20);
  for (size_t i = 0; i < examples.size(); ++i) examples[i].id = std::to_string(i);
  EXPECT_THAT(ids_of(select_examples(examples, 3, 1, RowOrder::first, "train_size")), ElementsAre("0", "1", "2"));
  const auto all = ids_of(select_examples(examples, 0, 1, RowOrder::random, "train_size"));
  EXPECT_EQ(all, ids_of(select_examples(examples, -1, 1, RowOrder::random, "train_size")));
  EXPECT_NE(all, ids_of(select_examples(examples, 0, 2, RowOrder::random, "train_size")));
  EXPECT_THAT(all, ::testing::UnorderedElementsAreArray(ids_of(examples)));
  EXPECT_EQ(ids_of(select_examples(examples, 5, 1, RowOrder::random, "train_size")),
            std::vector<std::string>(all.begin(), all.begin() + 5));
}

TEST(HoldOut, IsASeededPart) {
  for (const auto& [size, fraction, count] : std::vector<std::tuple<size_t, double, size_t>>{
           {20, 0.05, 1}, {20, 0.001, 1}, {20, 0.5, 10}, {20, 0.12, 2}, {2, 0.7, 1}, {1000, 0.07, 70}}) {
    std::vector<Example> rows(size);
    for (size_t i = 0; i < size; ++i) rows[i].id = std::string(1, static_cast<char>('a' + i / 100)) + std::to_string(i);
    const std::vector<Example> all = rows;
    const std::vector<std::string> held = ids_of(hold_out(rows, fraction, 7)), rest = ids_of(rows);
    EXPECT_EQ(held.size(), count);
    std::vector<std::string> both = held;
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_THAT(both, ::testing::UnorderedElementsAreArray(ids_of(all)));
    const auto in_order = [&](const std::vector<std::string>& ids) {
      size_t at = 0;
      for (const Example& example : all) at += at < ids.size() && example.id == ids[at];
      return at == ids.size();
    };
    EXPECT_TRUE(in_order(held) && in_order(rest));
    rows = all;
    EXPECT_EQ(ids_of(hold_out(rows, fraction, 7)), held);
    rows = all;
    EXPECT_TRUE(size < 1000 || ids_of(hold_out(rows, fraction, 8)) != held);
  }
  std::vector<Example> one(1), few(10);
  const auto refusal = [](std::vector<Example>& rows, double fraction) -> std::string {
    try {
      hold_out(rows, fraction, 7);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(one, 0.1), HasSubstr("leaves no row to train on. Give at least 2 rows that can be used"));
  EXPECT_THAT(refusal(few, 0.96), HasSubstr("0.96 of 10 rows leaves no row to train on. Give a smaller fraction"));
}

// The expected ids are the first three numbers of numpy_permutation(10, 42), which the next test checks.
TEST(SelectExamples, RowsOfDatasets) {
  std::vector<Example> examples(10);
  for (size_t i = 0; i < examples.size(); ++i) examples[i].id = std::to_string(i);
  EXPECT_THAT(ids_of(select_examples(examples, 3, 42, RowOrder::datasets, "train_size")), ElementsAre("5", "6", "0"));
}

// The expected orders come from numpy.random.default_rng(seed).permutation(size) of NumPy 2.4.
TEST(NumpyPermutation, EqualsNumpy) {
  EXPECT_THAT(numpy_permutation(10, 42), ElementsAre(5, 6, 0, 7, 3, 2, 4, 9, 1, 8));
  EXPECT_THAT(numpy_permutation(17, 7), ElementsAre(3, 16, 6, 8, 1, 10, 0, 7, 4, 15, 14, 13, 2, 12, 5, 9, 11));
  EXPECT_THAT(numpy_permutation(12, (uint64_t{1} << 40) + 3), ElementsAre(2, 4, 10, 9, 6, 5, 3, 7, 11, 0, 8, 1));
  EXPECT_THAT(numpy_permutation(1, 0), ElementsAre(0));
  EXPECT_TRUE(numpy_permutation(0, 0).empty());
  const auto squad = numpy_permutation(87599, 42);  // SQuAD's training data has 87599 rows
  EXPECT_THAT(std::vector<int64_t>(squad.begin(), squad.begin() + 4), ElementsAre(83168, 49357, 60182, 66356));
  int64_t sum = 0;
  for (int64_t i = 0; i < std::ssize(squad); ++i) sum += squad[static_cast<size_t>(i)] * (i % 1000);
  EXPECT_EQ(sum, 1911425498147);
}

TEST(SelectExamples, MoreThanExist) {
  try {
    select_examples(std::vector<Example>(3), 4, 0, RowOrder::first, "eval_size");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("eval_size: 4 examples are requested, but the data set has 3"));
  }
  EXPECT_THROW(select_examples(std::vector<Example>(3), -2, 0, RowOrder::first, "eval_size"), UsageError);
}

}  // namespace
}  // namespace tessera
