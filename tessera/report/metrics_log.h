// metrics.jsonl: what a run measured, one JSON object a line, in the order of the steps.
//
//   {"schema": 1, "kind": "train", "step": 10, "epoch": 0.5, "loss": 4.895, ..., "timing":
//   {"samples_per_second": 73.2}}
//
// All that depends on the clock or the machine stands under "timing". Drop that key, and two runs that computed the
// same have the same bytes, whether or not one of them was killed and resumed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/report/output_file.h"
#include "tessera/report/record.h"

namespace tessera {

class MetricsLog {
 public:
  static constexpr int kSchema = 1;

  // An empty file, whatever stood there.
  static MetricsLog create(const std::string& path);
  // Goes on after the first size_bytes (from a checkpoint) of an existing file and drops what came after: the steps
  // since the checkpoint are about to be done again. InputError when the file is missing, shorter, or no line ends
  // there.
  static MetricsLog resume(const std::string& path, int64_t size_bytes);

  // Writes one record, which has left the process when this returns. kind: "train", "eval", "summary", ...; step: of
  // the optimizer, counted from 1; values must not use the keys schema, kind, step, epoch, timing. RunError when the
  // disk fails: the file then ends with the record before.
  void append(std::string_view kind, int64_t step, double epoch, const Record& values, const Record& timing = {});

  // The size for a checkpoint to remember, after all records so far are safely on the disk.
  int64_t synced_size_bytes();
  int64_t size_bytes() const { return file_.size_bytes(); }

 private:
  explicit MetricsLog(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
};

}  // namespace tessera
