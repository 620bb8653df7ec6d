// Writes the folder of an offline W&B run: offline-run-TIME-ID/run-ID.wandb.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tessera/log/output_file.h"
#include "tessera/log/trackers/protobuf.h"
#include "tessera/log/trackers/tracker.h"
#include "tessera/log/trackers/wandb_variables.h"

namespace tessera {

class WandbTracker : public Tracker {
 public:
  // The id of a run and the name of its folder. Both are empty for a new run.
  struct Place {
    std::string run_id, folder_name;
  };
  // `earlier`: the run in `parent` to continue. Its first `rows_to_keep` rows (records of metrics.jsonl) are kept. For
  // a new run, or if the log of `earlier` is missing, creates a new folder.
  WandbTracker(const std::filesystem::path& parent, const Place& earlier, int64_t rows_to_keep,
               const WandbVariables& variables, const Record& config);

  const Place& place() const { return place_; }
  std::filesystem::path folder() const { return parent_ / place_.folder_name; }
  int64_t num_rows() const override { return num_rows_; }
  void append(const TrackerRow& row) override;
  void append_system(const Record& values, int64_t step, double wall_s) override;
  void finish(int exit_code, const Record& summary, double runtime_s) override;

 private:
  void keep(int64_t rows_to_keep);
  void begin(const WandbVariables& variables, const Record& config);
  void write(int field, const ProtoMessage& value);

  const std::filesystem::path parent_;
  Place place_;
  int64_t num_rows_ = 0, num_records_ = 0;
  std::optional<OutputFile> file_;
  Record last_ = Record::object();  // the last value of each tag
};

std::string wandb_time_text(double wall_s);  // "20260131_235959", in local time
std::string random_run_id();                 // 8 random letters and digits

}  // namespace tessera
