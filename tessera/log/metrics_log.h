// metrics.jsonl: the measurements of a run, one JSON object per line, in the order of the steps.
//
//   {"schema": 1, "kind": "train", "step": 10, "epoch": 0.5, "loss": 4.895, ..., "timing":
//   {"samples_per_second": 73.2}}
//
// Everything that depends on the clock or the machine is under "timing". Except for this key, two runs with the same
// computation write the same bytes, even if one of the runs was killed and resumed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/base/record.h"
#include "tessera/log/output_file.h"

namespace tessera {

class MetricsLog {
 public:
  static constexpr int kSchema = 1;
  static constexpr const char* kFileName = "metrics.jsonl";

  // Creates an empty file. Removes earlier content.
  static MetricsLog create(const std::string& path);
  // Continues an existing file after its first size_bytes bytes (the size that a checkpoint recorded). Removes the
  // rest, because the run repeats the steps after the checkpoint. Throws InputError if the file is missing or shorter,
  // or if no line ends at size_bytes.
  static MetricsLog resume(const std::string& path, int64_t size_bytes);

  // Appends one record and returns it. On return, the operating system has the record. `kind`: "train", "eval",
  // "summary", ... `step`: the number of optimizer steps done. `values` must have none of the keys schema, kind,
  // step, epoch and timing. Throws RunError if the disk fails; the file then ends with the previous record.
  Record append(std::string_view kind, int64_t step, double epoch, const Record& values, const Record& timing = {});

  // Syncs all records to the disk and returns the size of the file, for a checkpoint.
  int64_t synced_size_bytes();
  int64_t size_bytes() const { return file_.size_bytes(); }
  // Continues the log in the file `path`. If the log is not there, because its file was removed or replaced, writes all
  // records there first.
  void keep_at(const std::string& path);
  const std::string& path() const { return file_.path(); }

 private:
  explicit MetricsLog(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
};

}  // namespace tessera
