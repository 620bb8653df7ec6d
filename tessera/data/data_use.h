// How much of a data set a run uses: rows and tokens, and the rows that it skips.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/prompts.h"

namespace tessera {

// What to do with rows that cannot be used.
enum class BadRows {
  skip,  // leave them out, unless they are more than a share of all
  stop,  // refuse the data set
};

struct DataUse {
  int64_t rows_used = 0;
  int64_t rows_cut = 0;           // of the used ones: those that lost tokens
  int64_t rows_without_loss = 0;  // of the used ones: those without a token that carries loss
  int64_t rows_malformed = 0;     // skipped: could not be read. Their tokens are not known.
  int64_t rows_too_long = 0;      // skipped: question and answer alone are longer than a sample
  int64_t rows_left_out = 0;      // texts that LongTexts::skip leaves out
  int64_t num_samples = 0;
  // Of the rows that could be read: together all their tokens.
  int64_t tokens_used = 0, tokens_cut = 0, tokens_dropped = 0;
  std::vector<BadRow> bad;  // the malformed rows, then those that are too long

  int64_t rows_bad() const { return rows_malformed + rows_too_long; }
  bool complete() const { return rows_cut + rows_bad() + rows_left_out == 0; }

  // Counts a row that could be read.
  void add(const EncodedRow& row);
  // Counts malformed rows.
  void add_malformed(std::vector<BadRow> rows);
};

// Throws InputError where `bad` rows among `num_rows` of a file are not to be skipped: under BadRows::stop any, else
// all of them, or a larger share than `most`. It names the first ones.
void check_bad_rows(std::span<const BadRow> bad, int64_t num_rows, BadRows policy, double most,
                    const std::string& path);

}  // namespace tessera
