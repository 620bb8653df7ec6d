// The trackers of a run. They write the records of metrics.jsonl in the formats of TensorBoard and W&B, but do not use
// the packages of these programs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/log/trackers/tracker.h"
#include "tessera/log/trackers/wandb_variables.h"

namespace tessera {

struct TrackerOptions {
  bool tensorboard = false, wandb = false;
  std::string output_dir;   // for trackers.json, which names the files to continue
  std::string tracker_dir;  // for the folders tensorboard and, if WANDB_DIR is not set, wandb; empty: output_dir
  WandbVariables wandb_variables;
  Record config = Record::object();  // every setting of the run
};

// All trackers of a run. If a tracker cannot write, `note` gets one warning, and this tracker ends. The other trackers
// and the run continue.
class Trackers {
 public:
  using Note = std::function<void(const std::string&)>;
  // `lines`: the records that metrics.jsonl already holds, from earlier parts of the run. `runtime_s`: the runtime of
  // these parts. After construction, each tracker has exactly one row for each of `lines`: it keeps the rows that it
  // wrote for them earlier, removes all later rows, and adds missing rows.
  Trackers(const TrackerOptions& options, const std::vector<Record>& lines, double runtime_s, Note note);
  ~Trackers();  // if finish() was not called, marks the run as failed
  Trackers(const Trackers&) = delete;

  void append(const Record& line, double runtime_s);  // `line`: a new record of metrics.jsonl
  void append_system(const Record& values, int64_t step);
  void finish(int exit_code, const Record& summary, double runtime_s);

 private:
  void guard(const std::string& effect, const std::function<void()>& work, const std::function<void()>& give_up);
  void each(const std::function<void(Tracker&)>& work);
  void start(const char* name, const std::function<std::unique_ptr<Tracker>()>& make);

  struct Named {
    const char* name;
    std::unique_ptr<Tracker> tracker;
  };
  const Note note_;
  std::vector<Named> trackers_;
  double last_runtime_s_;
  bool finished_ = false;
};

// This process's resident memory and number of threads, and the machine's used and available memory. The keys are W&B's
// names.
Record process_values();

}  // namespace tessera
