// Question-answering examples and plain texts, as they stand in the files of users.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What an unanswerable question (SQuAD v2.0 is_impossible, or an empty list of answers) is to be answered with.
inline constexpr const char* kNoAnswer = "No Answer";

// One sample of a data set: a question about a context, or a plain text. All strings are valid UTF-8.
struct Example {
  std::string place;  // in its file: "rows.jsonl:12", "squad.json: data[0].paragraphs[0].qas[1]"
  std::string id;     // as in the file; may be empty
  std::string context, question;
  std::vector<std::string> answers;  // at least one; the first is the one to learn, all count in scoring
  int64_t answer_start = -1;         // byte offset of answers[0] in context; -1 where answerable is false
  bool answerable = false;
  std::optional<std::string> text;  // set for a row {"text": ...} alone; all of the above is then empty
};

// A row that cannot be used: malformed, or too long.
struct BadRow {
  std::string place, what, remedy;  // as in an error's message
};

struct ExampleRows {
  std::vector<Example> examples;  // the rows that can be used, in their order
  std::vector<BadRow> bad;        // the malformed ones
};

// Reads a data set. What the file is shows in its content, not in its name:
//   - SQuAD v1.1 or v2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
//     [{"text", "answer_start"}], "is_impossible"}]}]}]};
//   - rows, as a JSON array or one JSON object a line (JSONL): {"context", "question", "answers": {"text": [...],
//     "answer_start": [...]}}, the rows of Hugging Face; id and answer_start may be absent, and answers may have
//     SQuAD's own form too;
//   - rows {"text": ...}, likewise.
// answer_start counts code points in files. Where the context does not have the answer there, the occurrence nearest to
// it is taken (without answer_start: the first). Every answer must occur in its context, except the word kNoAnswer.
// A row of another structure, or with an answer that its context does not have, is a bad row. A malformed paragraph or
// article of SQuAD counts as one. Throws InputError, with the path and the line, for a file that cannot be read, is no
// UTF-8 (with the byte offset), no JSON, or without any row.
ExampleRows load_rows(const std::filesystem::path& path);
// The same where every row must be good. The first bad row is an InputError with its line (JSONL) or its key
// (data[3].paragraphs[0].qas[2]).
std::vector<Example> load_examples(const std::filesystem::path& path);

// The same from the content of a file; `where` stands for its path in errors.
ExampleRows rows_from_text(std::string_view content, const std::string& where);
std::vector<Example> examples_from_text(std::string_view content, const std::string& where);

// The first `count` examples (0 or -1: all), after a shuffle that depends on the seed alone where `shuffle` is set.
// More than there are is a UsageError rather than a silently smaller data set, as with `select` of Hugging Face
// datasets; `setting` names the flag at fault, such as "--train-size".
std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, bool shuffle,
                                     const std::string& setting);

}  // namespace tessera
