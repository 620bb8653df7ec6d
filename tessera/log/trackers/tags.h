// Tags: the names of a run's measurements in trackers (TensorBoard and W&B). If the Hugging Face Trainer also
// writes a measurement, both use the same tag.
#pragma once

#include "tessera/base/record.h"

namespace tessera {

// tags_of() returns this tag for every record.
inline constexpr const char* kEpochTag = "train/epoch";

// Returns the numbers of a record of metrics.jsonl by tag (train/epoch, train/loss, eval/loss, train/train_runtime and
// others). NaN and infinity become null. A step without a target has neither a loss nor a norm.
Record tags_of(const Record& line);

}  // namespace tessera
