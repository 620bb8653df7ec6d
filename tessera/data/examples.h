// Questions, conversations and plain texts, as in the users' files.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/data/field_names.h"

namespace tessera {

// What a model learns to answer to a question without an answer, unless --unanswerable-text gives another text.
inline constexpr const char* kNoAnswer = "No Answer";

// All strings of an example are valid UTF-8.
struct Question {
  std::string context, question;     // the context is empty for a question without a context
  std::vector<std::string> answers;  // training uses the first one; empty if the question has no answer
  int64_t answer_start = -1;         // byte offset of answers[0] in context; -1 if not answerable
  bool answerable = false;           // answers[0] is a copy of text in the context
  bool free_answer = false;          // there is a context, but answers[0] is no copy of text in it
};

// A row {"prompt", "completion"}. Both texts are used unchanged.
struct Completion {
  std::string prompt, completion;
};

// A row {"text": ...}.
struct PlainText {
  std::string text;
};

// A row of messages, in the form that chat templates expect: objects with "role" and "content" ("user", "assistant",
// "system", "tool", …), and whatever else the row gives them ("tool_calls", "name", "reasoning_content").
struct Conversation {
  nlohmann::ordered_json messages;   // an array with at least one message
  nlohmann::ordered_json tools;      // an array, or null
  nlohmann::ordered_json variables;  // more variables of the template ("chat_template_kwargs"), an object or null
};

// A row of token ids, from a program. No tokenizer and no template touches them.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<bool> has_loss;  // [ids]: whether the model learns to produce this token
};

// One sample of a data set.
struct Example {
  std::string place;  // of the sample in its file: "rows.jsonl:12", "squad.json: data[0].paragraphs[0].qas[1]"
  std::string id;     // as in the file; may be empty
  std::variant<Question, Completion, PlainText, Conversation, TokenRow> content;
  int64_t number = -1;  // of a row that a program gave, from 0; -1 in files

  // Null if the example is of another kind.
  const Question* question() const { return std::get_if<Question>(&content); }
  Question* question() { return std::get_if<Question>(&content); }
  const Completion* completion() const { return std::get_if<Completion>(&content); }
  const PlainText* text() const { return std::get_if<PlainText>(&content); }
  const Conversation* conversation() const { return std::get_if<Conversation>(&content); }
  const TokenRow* tokens() const { return std::get_if<TokenRow>(&content); }
  bool is_unanswerable() const { return question() && question()->answers.empty(); }
};

// A row that cannot be used, because it is malformed or too long, or because the tokenizer rejects it.
struct BadRow {
  std::string place, what, remedy;  // as in an error message
  int64_t num_rows = 1;             // more than 1 for a paragraph or an article with several questions
};

struct ExampleRows {
  std::vector<Example> examples;  // the usable rows, in file order
  std::vector<BadRow> bad;        // the malformed rows, in file order
};

// What is a row of a .txt file.
enum class TextRows {
  file,  // the complete file is one text
  line,  // each line that is not blank is one text, without the end of the line
};

// The format of a row. row_formats.h describes the formats.
enum class RowKind { automatic, messages, sharegpt, alpaca, completion, text, question };

// How to read the rows of a data set.
struct RowOptions {
  TextRows text_rows = TextRows::file;
  // The format of all rows. A row of another format is a bad row. automatic: the keys of each row decide.
  RowKind kind = RowKind::automatic;
  FieldNames fields{};
  // The rows are prompts to continue. What training learns from a row is then optional: answers, completions, outputs
  // and messages of the assistant. A prompt with its completion becomes a plain text, without the completion.
  bool as_prompts = false;
};

// Reads the files of a data set, one after the other. The content of a file decides its format, except that a file
// whose name ends with .txt has plain texts (see TextRows):
//   - SQuAD v1.1 or v2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
//     [{"text", "answer_start"}], "is_impossible"}]}]}]};
//   - rows: a JSON array of rows, {"data": [rows]}, or one JSON object per line (JSONL). row_formats.h lists the
//     formats of a row.
// A row with another structure is a bad row. So is a line of JSONL that is not a JSON object: the next line is the next
// row. In an array, a row is bad if only its values are invalid (such as NaN, half of an emoji or a duplicate key). If
// the brackets, commas or quotes of an array are wrong, then nobody knows where the next row begins, and the file is
// refused. In SQuAD's format, the smallest part (question, paragraph, article) with the fault is bad, and all its
// questions count as bad rows.
//
// Throws InputError if a file cannot be read, has no row, is not JSON (with line and column), or is a file of another
// kind (see read_data_file()). Each question gets a copy of its context. If answer_start does not fit the answer, the
// context is also searched. To limit memory and time, throws InputError if the copied and searched bytes of a file are
// in total more than 1 GiB and more than 64 times the size of the file.
ExampleRows load_rows(const std::vector<std::string>& paths, const RowOptions& options = {});
// Like load_rows(), but every row must be good. Throws InputError for the first bad row, with its line (JSONL) or its
// key (data[3].paragraphs[0].qas[2]).
std::vector<Example> load_examples(const std::vector<std::string>& paths, const RowOptions& options = {});

// Like load_rows() and load_examples(), for the content of one file. `where` replaces the path of the file in errors.
ExampleRows rows_from_text(std::string_view content, const std::string& where, const RowOptions& options = {});
std::vector<Example> examples_from_text(std::string_view content, const std::string& where,
                                        const RowOptions& options = {});

// The order of the rows. select_examples() takes the first rows in this order.
enum class RowOrder {
  first,     // as in the file
  random,    // shuffled, depending only on the seed
  datasets,  // as Dataset.shuffle(seed) of Hugging Face datasets orders them
};

// Returns the numbers of the first `count` of `size` rows in the order `order`. select_examples() chooses the same
// rows, and says what it throws.
std::vector<int64_t> select_rows(int64_t size, int64_t count, uint64_t seed, RowOrder order,
                                 const std::string& setting);
// Returns the first `count` examples in the order `order`; for 0 or -1, all examples. Throws UsageError if `count` is
// larger than the number of examples (as `select` of Hugging Face datasets does), or less than -1. `setting` is the
// option that gives `count`: "train_size".
std::vector<Example> select_examples(std::vector<Example> examples, int64_t count, uint64_t seed, RowOrder order,
                                     const std::string& setting);

// Moves a part of the examples to a second list: `fraction` (between 0 and 1) of their number, rounded, but at least
// one. The seed alone decides which examples. Both lists keep the order of the file. Throws UsageError if no example
// would be left in the first list.
std::vector<Example> hold_out(std::vector<Example>& examples, double fraction, uint64_t seed);

}  // namespace tessera
