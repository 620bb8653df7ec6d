// A training run from its settings to its summary: data, model, steps, evaluations, checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "tessera/base/clock.h"
#include "tessera/load/datasets.h"
#include "tessera/load/saved_model.h"
#include "tessera/log/progress.h"
#include "tessera/session/evaluation.h"
#include "tessera/session/session.h"
#include "tessera/settings/resolve.h"
#include "tessera/train/calendar.h"
#include "tessera/train/checkpoints.h"
#include "tessera/train/health.h"
#include "tessera/train/measurements.h"
#include "tessera/train/output_folder.h"
#include "tessera/train/planned_costs.h"
#include "tessera/train/recorder.h"
#include "tessera/train/run_start.h"
#include "tessera/train/train_state.h"

namespace tessera {

// Whether a run with these settings will probably start from a checkpoint. It then does not need the weights of
// --model.
bool starts_from_checkpoint(const Settings& settings);

// The value that the search for the best model compares. Higher is better.
double metric_of(const EvalOutcome& outcome, Settings::Metric metric);

// The value of `received_signal` if the program that runs the trainer wants to stop it. No signal has this number.
constexpr int kStoppedByProgram = 1000;

// A step of a run, for the program that runs the trainer.
struct StepReport {
  int64_t step = 0, num_steps = 0;  // `step` counts from 1
  double epoch = 0, learning_rate = 0, loss_scale = 1, runtime_s = 0;
  StepResult result;
};
struct EvaluationReport {
  int64_t step = 0;
  double epoch = 0;
  EvalMetrics loss;
  std::optional<AnswerMetrics> answers;
};

// Functions of the program that runs the trainer. They run on the thread of Trainer::run(), on every rank.
struct TrainObserver {
  enum class Next {
    proceed,
    stop,    // saves a checkpoint, as a signal does: the run can be continued
    finish,  // ends the run as if this were its last step: saves the model
  };
  std::function<Next(const StepReport&)> on_step{};
  std::function<void(const EvaluationReport&)> on_evaluation{};
};

// What a run prints when a signal has stopped it after `step` steps. `added_words`: what the command that continues the
// run needs in addition, such as " --output-dir NEW".
std::string note_of_stop(int signal, int64_t step, const std::string& added_words = "");

class Trainer {
 public:
  // Reads the data and the model's configuration and allocates all memory. Creates the output folder and the files of
  // --memory-log and --offload, but no results. run() saves the text of `resolved` as resolved-config.toml, with the
  // choice of a search (chosen_settings.h).
  // `received_signal` returns the number of a signal that asks this rank to stop, or 0. Only the first rank prints and
  // writes results; all ranks write checkpoints and models. Throws UsageError, InputError, OutOfMemoryError, RunError
  // and CommunicationError. Collective.
  // `given`: rows that replace the files of --dataset or --eval-dataset.
  Trainer(Session& session, ResolvedSettings resolved, std::function<int()> received_signal, GivenRows given = {});

  // Trains from the start or from a checkpoint, until the end or until one of the ranks receives a signal. Returns the
  // exit code of the process. Calls `started` when the first evaluation or step begins: from then on, the run checks
  // `received_signal` regularly. Collective.
  int run(const std::function<void()>& started = [] {});
  // Calls these functions during run(). Call it before run().
  void observe(TrainObserver observer) { observer_ = std::move(observer); }
  const ResolvedSettings& resolved() const { return resolved_; }
  // The content of summary.json, after a run that has finished. Null on other ranks than the first.
  const Record& final_summary() const { return final_summary_; }
  const TrainState& state() const { return state_; }
  // Of the complete run, including its earlier parts.
  double epochs() const { return epoch_now(); }
  double runtime() const { return runtime_s(); }
  // The output folder. It differs from --output-dir if it was renamed during the run.
  const std::filesystem::path& folder() const { return folder_->path(); }
  // Makes run() record its measurements with trackers. Call it before run().
  void track(TrackerOptions options) { tracker_options_ = std::move(options); }
  // Sets the result of the check of --preflight, for summary.json; null: there was no check.
  void note_preflight(Record result) { preflight_ = std::move(result); }
  // Releases the output folder for other runs, unless a thread may still write a checkpoint there. Call it only if the
  // process ends immediately afterwards.
  void unlock_output() {
    if (folder_ && !(checkpoints_ && checkpoints_->in_background())) folder_->release();
  }

 private:
  void check_adapter();
  void choose_settings();
  WorkBounds work_of(const Settings& settings, bool fused) const;
  bool may_fuse() const;
  bool fits_fused();
  bool runs_fused();
  void open_folder();
  // ---- trainer_start.cc
  void start();
  void restore(const RunStart::From& from);
  void resume(const RunStart& start);
  void begin_elsewhere(const RunStart::From& from);
  void start_again();
  // ---- trainer.cc
  int train();
  void one_step(const BatchPlan& plan, int64_t step_of_epoch);
  void log_step(const StepResult& result, double learning_rate, double loss_scale);
  void show_step(const StepResult& result, double learning_rate, double loss_scale);
  void append(const char* kind, const Record& values, const Record& timing);
  void plan_costs();
  void start_trackers();
  std::optional<EvalOutcome> evaluate();
  bool evaluate_after_step();
  std::optional<double> evaluated_at_end() const;
  bool improves(const EvalOutcome& outcome);
  bool stop_asked();
  int stop();
  void checkpoint();
  WritePart checkpoint_part();
  void rotate(bool keeps_sound = false);
  void finish_checkpoints(bool is_wanted);
  void load_best_model();
  void finish();
  // ---- trainer_summary.cc
  Record summary(const TrainMetrics& metrics, const Record& gpu);
  void print_table(const Record& summary) const;
  void warn_of_slow_steps(const Record& gpu);

  double epoch_now() const { return calendar_->epochs_after(state_.step); }
  double runtime_s() const { return runtime_before_s_ + steady_seconds() - begin_s_; }

  Session& session_;
  const Settings& settings_;
  ResolvedSettings resolved_;
  Record choice_;
  Console& console_;
  const std::function<int()> received_signal_;
  std::optional<Measurements> measurements_;
  TrainingData data_;
  Record fingerprint_, preflight_;
  bool fused_ = false;
  WorkBounds work_;
  std::optional<PlannedCosts> planned_;  // only on the first rank
  std::optional<Calendar> calendar_;
  std::optional<OutputFolder> folder_;
  std::optional<Health> health_;
  std::optional<Recorder> recorder_;
  std::optional<Checkpoints> checkpoints_;
  FrozenFiles frozen_;                       // the frozen sections that the run's checkpoints do not hold
  std::optional<ModelWriter> model_writer_;  // created when the types of the initial model are known
  TrackerOptions tracker_options_;           // from track()
  TrainState state_;
  double begin_s_ = steady_seconds();  // start of the training, after data and model were read
  double runtime_before_s_ = 0;        // runtime up to the checkpoint that training started from
  int64_t bytes_sent_ = 0;             // sent by this rank during training
  int stop_signal_ = 0;                // the signal that stops all ranks; 0: none
  TrainObserver observer_;
  TrainObserver::Next next_ = TrainObserver::Next::proceed;
  Record final_summary_;
  std::optional<Progress> progress_;
  int64_t steps_of_this_run_ = 0;
};

}  // namespace tessera
