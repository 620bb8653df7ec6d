// Data files as the engine takes them: examples, their token rows, and the bounds that memory follows from.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/data_use.h"
#include "tessera/data/prompts.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/engine.h"
#include "tessera/settings/settings.h"

namespace tessera {

struct Dataset {
  std::vector<Example> examples;
  std::vector<Sample> samples;                // of each example, in their order: one, or the pieces of a text
  std::vector<std::vector<int32_t>> prompts;  // of each example, for generation; empty unless asked for
  DataUse use;                                // what became of the rows
};

enum class DatasetUse { training, evaluation };

// Reads --dataset or --eval-dataset, takes --train-size or --eval-size of its rows, and encodes them in threads.
// `eos_id` ends answers. Malformed rows are skipped before rows are taken, and those that are too long afterwards.
// UsageError, InputError; InputError when too many rows are bad, or no sample carries loss.
Dataset load_dataset(const Settings& settings, DatasetUse use, const Tokenizer& tokenizer, int32_t eos_id,
                     bool with_prompts, ThreadPool& pool);

// No `batch_size` samples have more tokens or targets together than this.
BatchBounds bounds_of(const std::vector<Sample>& samples, int64_t batch_size);
BatchBounds bounds_of(const std::vector<std::vector<int32_t>>& prompts, int64_t batch_size);

// That of --eval-dataset, with prompts if answers are to be generated; nullopt where none is given.
std::optional<Dataset> eval_dataset_of(const Settings& settings, const Tokenizer& tokenizer, int32_t eos_id,
                                       ThreadPool& pool);

}  // namespace tessera
