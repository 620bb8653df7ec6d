// Reports how much of a data set a run uses, as a line and as a record.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/data/batches.h"
#include "tessera/data/data_use.h"
#include "tessera/data/tokenizer.h"
#include "tessera/log/console.h"
#include "tessera/model/config.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The value of "train_data" or "eval_data" in summary.json. Lists at most 100 skipped rows.
Record data_record(const DataUse& use);
// "train.jsonl: 8 rows as 192 samples, 24,123 tokens; nothing cut or dropped"
std::string data_line(const DataUse& use, const Settings& settings);
// Prints data_line(). If rows were skipped, then prints a warning with the file and the number of these rows, and a
// line for each of the first 5, with its place in the file and its fault.
void note_data(const DataUse& use, const Settings& settings, Console& console);
// Prints a warning if evaluation data have questions without an answer, but --max-new-tokens is too small for the
// answer that says so (--unanswerable-text).
void note_long_no_answer(const DataUse& use, const Tokenizer& tokenizer, const Settings& settings, Console& console);
// Prints config.notes as warnings.
void note_model(const ModelConfig& config, Console& console);
// Prints the keys of tokenizer.json that Tessera does not use. Prints nothing if `keys` is empty.
void note_unused_keys(const std::vector<std::string>& keys, Console& console);

// Prints how full the micro-batches of an epoch are: "Micro-batches per epoch: 312, filled to 98.7 % of --batch-tokens
// 8192".
void note_fill(const Fill& fill, const Settings& settings, Console& console);

}  // namespace tessera
