// How much of a data set a run uses, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/data_use.h"
#include "tessera/report/console.h"
#include "tessera/report/record.h"
#include "tessera/settings/settings.h"

namespace tessera {

// The keys of "train_data" and "eval_data" in summary.json.
Record data_record(const DataUse& use);
// "train.jsonl: 8 rows as 192 samples, 24,123 tokens. Cut: …"
std::string data_line(const DataUse& use, const std::string& path, const Settings& settings);
// Prints the line, and the places of the first rows that are skipped.
void note_data(const DataUse& use, const std::string& path, const Settings& settings, Console& console);
// Prints which keys of the tokenizer's file are not used, if any.
void note_unused_keys(const std::vector<std::string>& keys, Console& console);

}  // namespace tessera
