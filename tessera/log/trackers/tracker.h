// The interface of a tracker: a writer of files for TensorBoard or W&B. Its functions throw RunError on failure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "tessera/base/record.h"

namespace tessera {

struct TrackerRow {
  Record tags;  // from tags_of()
  int64_t step = 0;
  double wall_s = 0;     // seconds since 1970
  double runtime_s = 0;  // seconds since the start of the run
};

class Tracker {
 public:
  virtual ~Tracker() = default;
  // The number of rows in the tracker's files. Row i holds the numbers of line i of metrics.jsonl.
  virtual int64_t num_rows() const = 0;
  virtual void append(const TrackerRow& row) = 0;
  // Records measurements of the machine. Example of a key of `values`: gpu.0.memoryAllocatedBytes.
  virtual void append_system(const Record& values, int64_t step, double wall_s) = 0;
  virtual void finish(int exit_code, const Record& summary, double runtime_s) = 0;
};

double seconds_since_1970();

}  // namespace tessera
