// The names of a run's measurements in trackers. The Hugging Face Trainer uses the same names.
#pragma once

#include "tessera/report/record.h"

namespace tessera {

// Every record of metrics.jsonl has this tag in trackers.
inline constexpr const char* kEpochTag = "train/epoch";

// The numbers of a record of metrics.jsonl, with their tags (train/epoch, train/loss, eval/loss, train/train_runtime
// and others). NaN and infinity are null.
Record tags_of(const Record& line);

}  // namespace tessera
