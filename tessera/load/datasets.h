// Converts data files to input of the engine: examples, their tokens, and upper bounds of the size of a batch. These
// bounds determine the memory of a run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batches.h"
#include "tessera/data/data_use.h"
#include "tessera/data/samples.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/load/cached_rows.h"
#include "tessera/settings/settings.h"

namespace tessera {

struct Dataset {
  std::vector<Example> examples;  // of evaluation data; empty for training data
  // In the order of the selected rows: one per row, or the pieces of a text. If the files are a mixture: in the order
  // of the mixture, with repetitions.
  Samples samples;
  std::vector<std::vector<int32_t>> prompts;  // one per example, for generation; empty unless requested
  DataUse use;                                // counts of used, cut and skipped rows
  int64_t num_too_long_without_answer = 0;    // the questions in use.rows_too_long that have no answer
  // [samples] Example::number of each sample's row. Empty for rows of files.
  std::vector<int64_t> row_numbers;
};

// Rows that a program gives instead of files.
struct GivenRows {
  std::optional<ExampleRows> train{}, eval{};
};
// The name of such rows in reports, and the value of --dataset or --eval-dataset of their run.
inline constexpr const char* kGivenRows = "rows of the program";

struct TrainingData {
  Dataset train;
  // With prompts if --eval-generation is set. Empty without --eval-dataset and --eval-fraction.
  std::optional<Dataset> eval{};
};

// Reads --dataset and --eval-dataset, selects --train-size and --eval-size of their rows, and encodes them on the
// threads of the pool. With --eval-fraction, holds out rows of --dataset before the selection. config.eos_token_id is
// the end-of-sequence token. A question has no answer if its row has none, or if all its answers say so by
// --unanswerable-text. A row is bad if it is malformed, or if it is too long even without its context. With
// --bad-rows skip, malformed rows are skipped before the selection, and rows that are too long are skipped after it. If
// the files of --dataset have shares (mixture.h), rows are held out of each file, and all bad rows are skipped, before
// the mixture is made. --train-size selects from the mixture.
// With --data-cache, the samples of --dataset are in files (cached_rows.h), and all rows are encoded before the
// selection. Collective.
//
// Throws UsageError if a setting does not suit the data, or if a sample is longer than the model's context or than
// kMaxDropoutKeys. Throws InputError if a file is not valid, if there are more bad rows than the settings allow, or if
// no sample has a token with loss.
//
// Rows in `given` replace the files. They have no cache.
TrainingData load_training_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                                ThreadPool& pool, const LoadRanks& ranks = {}, GivenRows given = {});
// Like load_training_data(), for --eval-dataset alone.
Dataset load_eval_data(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                       ThreadPool& pool, std::optional<ExampleRows> given = {});

// Throws UsageError if a prompt and its continuation are longer than the model's context. `place` names the prompt in
// the error, unless it is empty.
void check_context(const ModelConfig& config, int64_t prompt_tokens, int64_t new_tokens, const std::string& place = "");

// Packs the samples with these indices (pack()), with the numbers of their rows.
PackedBatch batch_of(const Dataset& dataset, std::span<const int64_t> indices);

std::vector<int64_t> lengths_of(const Samples& samples);  // [samples] in tokens

// Upper bounds of the tokens, sequences and targets in any `batch_size` samples or prompts.
BatchBounds bounds_of(const Samples& samples, int64_t batch_size);
BatchBounds bounds_of(const std::vector<std::vector<int32_t>>& prompts, int64_t batch_size);
// Upper bounds of the total tokens, sequences and targets in any `num_batches` batches. A batch consists of
// complete samples, which have at most `batch_tokens` tokens in total.
BatchBounds bounds_by_tokens(const Samples& samples, int64_t batch_tokens, int64_t num_batches = 1);

}  // namespace tessera
