// Question-answering examples and plain texts, as in the users' files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The expected answer to an unanswerable question (SQuAD v2.0 is_impossible, or an empty list of answers).
inline constexpr const char* kNoAnswer = "No Answer";

// One sample of a data set: a question about a context, or a plain text. All strings are valid UTF-8.
struct Example {
  std::string place;  // in its file: "rows.jsonl:12", "squad.json: data[0].paragraphs[0].qas[1]"
  std::string id;     // as in the file; may be empty
  std::string context, question;
  std::vector<std::string> answers;  // at least one; training uses the first, scoring uses all
  int64_t answer_start = -1;         // byte offset of answers[0] in context; -1 if not answerable
  bool answerable = false;
  std::optional<std::string>
      text;  // set only for a row {"text": ...}; the fields above, except place and id, are then empty
};

// A row that cannot be used because it is malformed or too long.
struct BadRow {
  std::string place, what, remedy;  // as in an error message
};

struct ExampleRows {
  std::vector<Example> examples;  // the usable rows, in file order
  std::vector<BadRow> bad;        // the malformed ones
};

// Reads a data set. The content of the file decides its format, not the name:
//   - SQuAD v1.1 or v2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
//     [{"text", "answer_start"}], "is_impossible"}]}]}]};
//   - rows, as a JSON array or one JSON object per line (JSONL): {"context", "question", "answers": {"text": [...],
//     "answer_start": [...]}}, as in Hugging Face data sets. id and answer_start are optional. answers may also have
//     SQuAD's form;
//   - rows {"text": ...}, as an array or as JSONL.
// In files, answer_start counts code points. If the answer is not at this position of the context, the nearest
// occurrence is used (without answer_start: the first). Every answer must occur in its context, except kNoAnswer. A row
// with another structure, or with an answer that is not in its context, is a bad row. A malformed paragraph or article
// of SQuAD counts as one bad row. Throws InputError, with path and line, if the file cannot be read, is not UTF-8 (with
// the byte offset), is not JSON, or has no row.
ExampleRows load_rows(const std::filesystem::path& path);
// The same, but every row must be good. The first bad row is an InputError with its line (JSONL) or its key
// (data[3].paragraphs[0].qas[2]).
std::vector<Example> load_examples(const std::filesystem::path& path);

// The same from the content of a file. `where` replaces its path in errors.
ExampleRows rows_from_text(std::string_view content, const std::string& where);
std::vector<Example> examples_from_text(std::string_view content, const std::string& where);

// How to order rows before the first ones are taken.
enum class RowOrder {
  first,     // as in the file
  random,    // shuffled, depending only on the seed
  datasets,  // as Dataset.shuffle(seed) of Hugging Face datasets orders them
};

// The first `count` examples (0 or -1: all) in an order. A count above the number of examples is a UsageError, as with
// `select` of Hugging Face datasets. `setting` names the flag in errors, such as "--train-size".
std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, RowOrder order,
                                     const std::string& setting);

}  // namespace tessera
