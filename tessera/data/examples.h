// Question-answering examples and plain texts, as in the users' files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What a model learns to answer to a question without an answer, unless --unanswerable-text gives another text.
inline constexpr const char* kNoAnswer = "No Answer";

// One sample of a data set: a question about a context, or a plain text. All strings are valid UTF-8.
struct Example {
  std::string place;  // of the sample in its file: "rows.jsonl:12", "squad.json: data[0].paragraphs[0].qas[1]"
  std::string id;     // as in the file; may be empty
  std::string context, question;
  std::vector<std::string> answers;  // training uses the first one; empty if the question has no answer
  int64_t answer_start = -1;         // byte offset of answers[0] in context; -1 if not answerable
  bool answerable = false;
  // Set only for a row {"text": ...}. All other fields except place and id then have their initial values.
  std::optional<std::string> text;
};

// A row that cannot be used, because it is malformed or too long, or because the tokenizer rejects it.
struct BadRow {
  std::string place, what, remedy;  // as in an error message
};

struct ExampleRows {
  std::vector<Example> examples;  // the usable rows, in file order
  std::vector<BadRow> bad;        // the malformed rows, in file order
};

// Reads a data set. The content of the file, not its name, decides the format:
//   - SQuAD v1.1 or v2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
//     [{"text", "answer_start"}], "is_impossible"}]}]}]};
//   - rows, as a JSON array or one JSON object per line (JSONL): {"context", "question", "answers": {"text": [...],
//     "answer_start": [...]}}, as in Hugging Face data sets. "id" and "answer_start" are optional. "answers" may also
//     be a list, as in SQuAD;
//   - rows {"text": ...}, as an array or as JSONL.
// A question has no answer if "answers" is an empty list or null, or if it is absent and "is_impossible" is true. If
// "is_impossible" is true and "answers" has a text, the row contradicts itself and is a bad row. Exceptions are the
// empty text and kNoAnswer. In files, answer_start counts code points. If the answer is not at this position of the
// context, its nearest occurrence is used. Without answer_start, the first occurrence of the answer is used. Every
// answer must occur in its context, except kNoAnswer. A row with another structure, or with an answer that is not in
// its context, is a bad row. A malformed paragraph or article of SQuAD counts as one bad row.
//
// Throws InputError if the file cannot be read, is not UTF-8 (with offset and line), is not JSON (with the line), or
// has no row. Each question gets a copy of its context. If answer_start does not fit the answer, the context is also
// searched. To limit memory and time, throws InputError if the copied and searched bytes are in total more than 1 GiB
// and more than 64 times the size of the file.
ExampleRows load_rows(const std::filesystem::path& path);
// Like load_rows(), but every row must be good. Throws InputError for the first bad row, with its line (JSONL) or its
// key (data[3].paragraphs[0].qas[2]).
std::vector<Example> load_examples(const std::filesystem::path& path);

// Like load_rows() and load_examples(), for the content of a file. `where` replaces the path of the file in errors.
ExampleRows rows_from_text(std::string_view content, const std::string& where);
std::vector<Example> examples_from_text(std::string_view content, const std::string& where);

// The order of the rows. select_examples() takes the first rows in this order.
enum class RowOrder {
  first,     // as in the file
  random,    // shuffled, depending only on the seed
  datasets,  // as Dataset.shuffle(seed) of Hugging Face datasets orders them
};

// Returns the first `count` examples in the order `order`; for 0 or -1, all examples. Throws UsageError if `count` is
// larger than the number of examples (as `select` of Hugging Face datasets does), or less than -1. `setting` names the
// flag in errors, such as "--train-size".
std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, RowOrder order,
                                     const std::string& setting);

}  // namespace tessera
