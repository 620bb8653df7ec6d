// Writes TensorBoard's event files into a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/log/output_file.h"
#include "tessera/log/trackers/tracker.h"

namespace tessera {

class TensorboardTracker : public Tracker {
 public:
  // `files`: the names of the event files that the run has written so far. Keeps only their first `rows_to_keep` rows
  // (a row is a record of metrics.jsonl), and removes the rest. Begins a new file, because a program that watches the
  // folder may not expect that an older file grows again.
  TensorboardTracker(const std::filesystem::path& folder, std::vector<std::string> files, int64_t rows_to_keep,
                     const Record& config);

  const std::vector<std::string>& files() const { return files_; }  // including the new one
  int64_t num_rows() const override { return num_rows_; }
  void append(const TrackerRow& row) override;
  void append_system(const Record& values, int64_t step, double wall_s) override;
  void finish(int, const Record&, double) override {}  // event files have no place for these values

 private:
  void keep(const std::filesystem::path& folder, std::vector<std::string> files, int64_t rows_to_keep);

  std::vector<std::string> files_;
  int64_t num_rows_ = 0, last_step_ = -1;
  std::optional<OutputFile> file_;
};

}  // namespace tessera
