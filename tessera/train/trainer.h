// A training run from its settings to its summary: data, model, steps, evaluations, checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "tessera/device/nvml/gpu_sampler.h"
#include "tessera/load/model_writer.h"
#include "tessera/optim/schedule.h"
#include "tessera/report/metrics_log.h"
#include "tessera/report/progress.h"
#include "tessera/report/trackers/trackers.h"
#include "tessera/store/background_checkpoint.h"
#include "tessera/store/output_lock.h"
#include "tessera/store/read_ahead.h"
#include "tessera/train/callback_figures.h"
#include "tessera/train/continuation.h"
#include "tessera/train/evaluation.h"
#include "tessera/train/memory_log.h"
#include "tessera/train/train_state.h"
#include "tessera/train/worker.h"

namespace tessera {

// Upper bounds of the batches that the engine computes. A run and its plan use the same bounds. `eval` may be null.
// `fused`: the engine computes the micro-batches of a step as one batch.
WorkBounds training_work(const Settings& settings, const Dataset& train, const Dataset* eval, bool fused = false);

// The value that the search for the best model compares. Higher is better.
double metric_of(const EvalOutcome& outcome, Settings::Metric metric);

// What a run prints when a signal has stopped it after `step` steps. `added_words`: what the command that continues the
// run needs in addition, such as " --output-dir NEW".
std::string note_of_stop(int signal, int64_t step, const std::string& added_words = "");

class Trainer {
 public:
  // Reads the data and the model's configuration and allocates all memory. Creates the output folder and the files of
  // --memory-log and --offload, but no results. run() saves `resolved_config` as resolved-config.toml.
  // `received_signal` returns the number of a signal that asks this rank to stop, or 0. Only the first rank prints and
  // writes results; all ranks write checkpoints and models. Throws UsageError, InputError, OutOfMemoryError, RunError
  // and CommunicationError. Collective.
  Trainer(const Settings& settings, std::string resolved_config, Console& console, World* world,
          std::function<int()> received_signal);

  // Trains from the start or from a checkpoint, until the end or until one of the ranks receives a signal. Returns the
  // exit code of the process. Calls `started` when the first evaluation or step begins: from then on, the run checks
  // `received_signal` regularly. Collective.
  int run(const std::function<void()>& started = [] {});
  // Makes run() record its measurements with trackers. Call it before run().
  void track(TrackerOptions options) { tracker_options_ = std::move(options); }
  // Sets the result of the check of --preflight, for summary.json; null: there was no check.
  void note_preflight(Record result) { preflight_ = std::move(result); }
  // Releases the output folder for other runs, unless a thread may still write a checkpoint there. Call it only if the
  // process ends immediately afterwards.
  void unlock_output() {
    if (!background_) lock_.reset();
  }

 private:
  struct Interval {
    Settings::Interval kind = Settings::Interval::no;
    int64_t steps = 0;  // only for Settings::Interval::steps
  };
  // Whether an interval ends after the current step. The last step of the run ends all intervals, except kind `no`.
  bool due(const Interval& interval) const;
  bool take_output_folder();
  void resume_or_start();
  enum class Source { nothing, newest, here, elsewhere };
  Source source_of_start() const;
  void resume(const Checkpoint& checkpoint, TrainState state, const std::vector<Change>& changes,
              const char* newer_are);
  void restore(const Checkpoint& checkpoint, TrainState state);
  void begin_elsewhere(const Checkpoint& checkpoint);
  void start_again();
  void refuse_to_replace_results() const;
  void refuse_to_lose_files() const;
  void make_way();
  void forget_overwritten_runs() const;
  void say(const std::string& line);
  LineStyle line_style() const {
    return tessera::line_style(settings_, settings_.json ? console_.err_terminal() : console_.out_terminal());
  }
  int train();
  void one_step(const BatchPlan& plan, int64_t step_of_epoch);
  void watch_update(const StepResult& result, double loss_scale);
  void note_no_targets();
  void watch_loss(double loss);
  [[noreturn]] void end_hopeless(std::optional<double> evaluated);
  std::optional<double> evaluated_at_end() const;
  [[noreturn]] void end_diverged(const std::string& where, const std::string& what, const std::string& remedy);
  void check_end();
  void check_parameters();
  void log_step(const StepResult& result, double learning_rate, double loss_scale);
  void append(const char* kind, const Record& values, const Record& timing);
  void start_trackers();
  void track_system();
  std::optional<EvalOutcome> evaluate();
  bool evaluate_after_step();
  bool stop_asked();
  int stop();
  bool improves(const EvalOutcome& outcome);
  std::string check_memory_again() const;
  void find_output_folder();
  void make_output_folder_again();
  void saving(const std::string& what, const std::function<void()>& work) const;
  void in_output_folder(const std::function<void()>& work);
  std::string words_of_continuation() const;
  std::string words_of_new_name(const std::filesystem::path& folder) const;
  void load_best_model();
  void checkpoint();
  void write_checkpoint_now(bool in_background);
  void rotate(bool keeps_sound = false);
  void finish_checkpoints();
  void finish();
  Record summary(const TrainMetrics& metrics, const Record& gpu);
  Record gpu_of_all_ranks();
  Record callbacks_of_all_ranks();
  Record memory_log_of_all_ranks();
  int64_t most_of_ranks(int64_t bytes) const;
  void print_table(const Record& summary) const;
  double epoch_now() const { return epochs_.epochs_after(state_.step); }
  double runtime_s() const { return runtime_before_s_ + steady_seconds() - begin_s_; }

  const Settings settings_;
  const std::string resolved_config_;
  std::filesystem::path output_dir_{settings_.output_dir};  // changes if the folder is renamed during the run
  Console& console_;
  const std::function<int()> received_signal_;
  ReadAhead read_ahead_;  // lives until the model is loaded
  Worker worker_;
  std::unique_ptr<MemoryLog> memory_log_;  // begins before data and model are read
  std::optional<OutputLock> lock_;         // first rank only
  ModelConfig config_;
  Tokenizer tokenizer_;
  TrainingData data_;
  Dataset& train_ = data_.train;
  std::optional<Dataset>& eval_ = data_.eval;
  bool fused_;
  WorkBounds work_;
  Engine engine_;
  std::optional<ModelWriter> model_writer_;  // created when the types of the initial model are known
  Record fingerprint_, preflight_;

  const std::vector<int64_t> lengths_;  // [samples] in tokens
  const BatchOptions batch_options_;
  const EpochSteps epochs_;
  int64_t num_steps_ = 0;
  ScheduleOptions schedule_;
  Interval eval_every_, save_every_;
  int64_t logging_steps_ = 0;  // steps between two log lines; 0: no log lines
  TrainState state_;
  double begin_s_ = steady_seconds();  // start of the training, after data and model were read
  double runtime_before_s_ = 0;        // runtime up to the checkpoint that training started from
  int64_t last_saved_step_ = -1;
  int64_t bytes_sent_ = 0;                 // sent by this rank during training
  bool folder_moved_ = false;              // find_output_folder() found a change since the last successful save
  bool rotates_ = false;                   // remove old checkpoints when the next step has succeeded, or at the end
  std::optional<MetricsLog> metrics_;      // first rank only
  TrackerOptions tracker_options_;         // from track()
  std::unique_ptr<Trackers> trackers_;     // first rank only
  GpuUsage tracked_usage_;                 // the GPU's usage when trackers last recorded it
  std::optional<double> tracked_at_s_;     // when trackers recorded tracked_usage_
  std::optional<LossScaler> loss_scaler_;  // fp16 only
  LossWatch loss_watch_{config_.vocab_size};
  std::unique_ptr<BackgroundCheckpoint> background_;
  int stop_signal_ = 0;  // the signal that stops all ranks; 0: none
  std::optional<Progress> progress_;
  std::unique_ptr<GpuSampler> gpu_sampler_;  // only during training on a GPU
  int64_t steps_of_this_run_ = 0;
  UtilizationFigures utilization_;
  SpeedFigures speed_{begin_s_};
};

}  // namespace tessera
