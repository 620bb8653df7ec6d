// How much of a data set a run uses: rows, tokens, and skipped rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/prompts.h"

namespace tessera {

// What to do with unusable rows.
enum class BadRows {
  skip,  // skip them, up to a given share of all rows
  stop,  // reject the data set
};

// How much of a file of a mixture an epoch uses.
struct FileUse {
  std::string path;
  double share = 0;
  int64_t rows = 0;            // the rows of the file that can be used
  int64_t rows_per_epoch = 0;  // including repetitions
};

// What DataUse counts of a row.
struct RowCount {
  int64_t num_samples = 0;
  int64_t num_tokens = 0;  // before they are cut or split
  int64_t num_used = 0;    // tokens of the samples
  bool has_target = false;
  std::optional<int32_t> wrong_end{};  // EncodedRow::wrong_end
  const BadRow* fault = nullptr;       // why a row without samples is bad; null if it is omitted
  // Of questions.
  bool is_unanswerable = false, is_without_context = false, has_free_answer = false;
};
// Without the facts of questions.
RowCount count_of(const EncodedRow& row);

struct DataUse {
  std::string name;                // of the data set in messages
  std::vector<std::string> files;  // its files
  int64_t rows_used = 0;
  int64_t rows_cut = 0;              // used rows that lost tokens
  int64_t rows_without_loss = 0;     // used rows without a token that carries loss
  int64_t rows_without_answer = 0;   // used rows with a question that has no answer
  int64_t rows_without_context = 0;  // used questions without a context
  int64_t rows_free_answer = 0;      // used questions whose answer is no copy of text in their context
  int64_t rows_malformed = 0;        // skipped because they could not be read; their token counts are unknown
  // Skipped because the row is too long for a sample even without its context, or because the tokenizer rejects the
  // text.
  int64_t rows_too_long = 0;
  int64_t rows_left_out = 0;           // texts that LongTexts::skip omits
  int64_t rows_without_end = 0;        // used conversations with a message that no end token of the model ends
  std::optional<int32_t> wrong_end{};  // the token that ends such a message in the first of these rows; −1: none
  std::string wrong_end_text{};        // its text; load_dataset() sets it
  int64_t num_samples = 0;
  // Tokens in samples; tokens that used rows lost; tokens of rows without a sample. The three counts add up to all
  // tokens of the rows that could be read.
  int64_t tokens_used = 0, tokens_cut = 0, tokens_dropped = 0;
  std::vector<FileUse> mixture;  // empty unless the files have shares; the counts above then include repetitions
  // The rows that rows_too_long and rows_malformed count, in the order of the calls of add() and add_malformed().
  std::vector<BadRow> bad;

  int64_t rows_bad() const { return rows_malformed + rows_too_long; }
  bool complete() const { return rows_cut + rows_bad() + rows_left_out == 0; }

  // Counts a row that could be read. A row with a fault counts in rows_too_long.
  void add(const RowCount& row);
  void add(const EncodedRow& row) { add(count_of(row)); }
  // Counts malformed rows.
  void add_malformed(std::vector<BadRow> rows);
};

// The number of rows that these faults make unusable.
int64_t num_rows_of(std::span<const BadRow> bad);

// The name of a data set in messages: the path of its only file, or "a.jsonl and 2 more files".
std::string data_name(const std::vector<std::string>& files);

// The place of a row within its file: "line 12", "line 12, column 5" or "data[3]", with the path before it unless it is
// the path `named`. Sets `named` to the path.
std::string place_in_file(const std::string& place, const std::vector<std::string>& files, std::string& named);

// Throws InputError if the `bad` rows among `num_rows` rows of `files` must not be skipped. Under BadRows::stop, no row
// may be bad. Under BadRows::skip, at least one row must be good, and the share of bad rows must not exceed `most`. The
// error names the first bad rows.
void check_bad_rows(std::span<const BadRow> bad, int64_t num_rows, BadRows policy, double most,
                    const std::vector<std::string>& files);

}  // namespace tessera
