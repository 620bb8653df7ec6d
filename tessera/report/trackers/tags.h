// Tags: the names of a run's measurements in trackers (TensorBoard and W&B). If the Hugging Face Trainer writes a
// measurement too, its tag is the same.
#pragma once

#include "tessera/report/record.h"

namespace tessera {

// Every record of metrics.jsonl has this tag in trackers.
inline constexpr const char* kEpochTag = "train/epoch";

// Returns the numbers of a record of metrics.jsonl by tag (train/epoch, train/loss, eval/loss, train/train_runtime and
// others). NaN and infinity become null.
Record tags_of(const Record& line);

}  // namespace tessera
