// The start of a training run: takes the output folder, then loads a checkpoint or the initial model.
#include <fmt/format.h>

#include "tessera/base/counted.h"
#include "tessera/base/read_file.h"
#include "tessera/load/initial_weights.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/replaceable.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kResults[] = {"model", "summary.json"};  // only a finished run has them
constexpr std::string_view kOverwrittenRun = "overwritten-run";

fs::path full_path(const fs::path& path) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  const fs::path full = fs::weakly_canonical(fs::absolute(path), ignored);
  return full.has_filename() ? full : full.parent_path();
}

std::string state_file(const Checkpoint& checkpoint) {
  return (checkpoint.folder() / "trainer_state.json").string();
}

bool has_results(const fs::path& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    for (const char* result : kResults) {
      if (name == result) return true;
    }
  }
  return false;
}

// Whether --resume names `origin` (the checkpoint that a run began from) or the folder that contains this checkpoint.
bool began_from(const std::string& origin, const std::string& resume) {
  const fs::path asked = full_path(resume);
  return !origin.empty() && (origin == asked || fs::path(origin).parent_path() == asked);
}

// Whether move_run_aside() has made a folder with this name: "overwritten-run", "overwritten-run-2", ...
bool is_overwritten_run(std::string_view name) {
  if (!name.starts_with(kOverwrittenRun)) return false;
  name.remove_prefix(kOverwrittenRun.size());
  return name.empty() || (name.size() > 1 && name[0] == '-' && name.find_first_not_of("0123456789", 1) == name.npos);
}

// Moves the results, checkpoints and logs of the run in `folder` to a new subfolder. A user can move them back by hand.
void move_run_aside(const fs::path& folder) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  if (steps.empty() && !has_results(folder)) return;
  const fs::path target = free_name(folder / kOverwrittenRun);
  create_folders(target);
  std::vector<std::string> names{"summary.json", "model", "resolved-config.toml"};
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) names.push_back(fmt::format("checkpoint-{}", *step));
  names.insert(names.end(), {MetricsLog::kFileName, "trackers.json", "tensorboard", "wandb"});
  for (const std::string& name : names) {
    if (fs::exists(folder / name)) rename_folder(folder / name, target / name);
  }
}

[[noreturn]] void refuse_other_settings(const Checkpoint& checkpoint, const std::vector<Change>& forbidden) {
  std::string remedy =
      "Use the same settings to continue that run, another --output-dir to keep both, or --overwrite to replace it";
  if (forbidden_among(forbidden, true).empty()) {
    remedy += fmt::format(". --resume {} with another --output-dir begins a new run from there with the new settings",
                          checkpoint.folder().string());
  }
  throw UsageError(state_file(checkpoint), listed(forbidden), remedy);
}

}  // namespace

// Returns false if a signal stops the ranks before the folder is free. Collective: the first rank takes the folder
// while the other ranks wait.
bool Trainer::take_output_folder() {
  for (bool is_noted = false;;) {
    const auto waiting_for = on_all_ranks(worker_.world(), "the output folder", [&]() -> std::string {
      return lock_ && !lock_->try_take() ? lock_->waiting_for() : "";
    })[0];
    if (waiting_for.empty()) break;
    if (!std::exchange(is_noted, true)) console_.note(waiting_for + " (--owner-timeout)");
    if (stop_asked()) return false;
    if (lock_) lock_->pause();
  }
  if (lock_) remove_stale_temporaries(settings_.output_dir, lock_->predecessor());
  return true;
}

// Where the run starts from, according to --resume. All ranks use the result of the first rank. Collective.
Trainer::Source Trainer::source_of_start() const {
  if (settings_.resume == "none") return Source::nothing;
  if (settings_.resume == "auto") return Source::newest;
  const fs::path asked = full_path(settings_.resume), own = full_path(settings_.output_dir);
  const bool is_here = asked == own || asked.parent_path() == own;
  const auto seen = on_all_ranks(worker_.world(), "the folder of --resume", [&] { return is_here ? "here" : ""; });
  return seen[0].empty() ? Source::elsewhere : Source::here;
}

void Trainer::resume_or_start() {
  worker_.enter(Phase::resume);
  const auto warn = [&](const std::string& text) { console_.note("warning: " + text); };
  const Source source = source_of_start();
  refuse_to_lose_files();
  std::optional<Checkpoint> checkpoint;
  if (source == Source::here) {
    checkpoint = find_checkpoint(settings_.resume, worker_.world(), warn, &worker_.pool());
  } else if (source != Source::nothing) {
    checkpoint = latest_checkpoint(settings_.output_dir, worker_.world(), warn, &worker_.pool());
  }
  if (checkpoint) {
    const std::string text = checkpoint->trainer_state(), where = state_file(*checkpoint);
    TrainState state = TrainState::from_json(text, where);
    const auto changes = changes_between(TrainState::fingerprint_in(text, where), fingerprint_);
    const auto forbidden = forbidden_among(changes, false);
    const bool is_asked_for = source != Source::elsewhere || began_from(state.origin, settings_.resume);
    if (is_asked_for && forbidden.empty()) {
      const bool is_chosen = source == Source::here && full_path(settings_.resume) != full_path(settings_.output_dir);
      return resume(*checkpoint, std::move(state), changes, is_chosen ? "superseded" : "damaged");
    }
    if (is_asked_for && (source == Source::here || !settings_.overwrite)) refuse_other_settings(*checkpoint, forbidden);
    if (!settings_.overwrite) {
      throw UsageError(settings_.output_dir, "holds the checkpoints of a run that --resume does not name",
                       "Choose another --output-dir, or give --overwrite to replace that run");
    }
  }
  refuse_to_replace_results();
  if (source == Source::elsewhere) {
    begin_elsewhere(find_checkpoint(settings_.resume, worker_.world(), warn, &worker_.pool()));
  } else {
    start_again();
  }
}

// Throws UsageError if the run would replace files that Tessera did not write: in `model`, or, with --overwrite, in
// checkpoints. A run that saves its model refuses this, too, but only at its end. Collective.
void Trainer::refuse_to_lose_files() const {
  on_all_ranks(worker_.world(), "the files in the output folder", [&]() -> std::string {
    if (!worker_.is_first()) return "";
    check_replaceable(fs::path(settings_.output_dir) / "model", why_no_saved_model);
    if (!settings_.overwrite) return "";
    for (const int64_t step : checkpoint_steps(settings_.output_dir)) {
      check_replaceable(checkpoint_folder(settings_.output_dir, step), why_no_own_checkpoint);
    }
    return "";
  });
}

// Called if this run does not continue the run in the output folder. Throws UsageError if this folder has results,
// unless --overwrite is given. Collective.
void Trainer::refuse_to_replace_results() const {
  on_all_ranks(worker_.world(), "the results in the output folder", [&]() -> std::string {
    if (!worker_.is_first() || settings_.overwrite || !has_results(settings_.output_dir)) return "";
    const std::string why = settings_.resume == "none"   ? "--resume none does not continue it"
                            : settings_.resume == "auto" ? "it left no checkpoint to continue from"
                                                         : "this run begins from a checkpoint of another folder";
    throw UsageError(
        settings_.output_dir, "holds the results of an earlier run, and " + why,
        "Choose another --output-dir, or give --overwrite to replace the results. To train the model of the "
        "earlier run further, give --model " +
            settings_.output_dir + " and another --output-dir");
  });
}

void Trainer::restore(const Checkpoint& checkpoint, TrainState state) {
  if (state.step > num_steps_) {
    throw UsageError(settings_.max_steps > 0 ? "--max-steps" : "--epochs",
                     fmt::format("the run ends after step {}, but {} is from step {}", num_steps_,
                                 checkpoint.folder().string(), state.step),
                     "Increase the number of steps or epochs, or name an earlier checkpoint with --resume");
  }
  state_ = std::move(state);
  restore_checkpoint(checkpoint, engine_, true, worker_.pool());
  runtime_before_s_ = state_.runtime_s;
  engine_.set_num_updates(state_.num_updates);
  if (loss_scaler_ && state_.loss_scale) loss_scaler_->restore(*state_.loss_scale);
  loss_watch_.restore(state_.health.losses);
  if (checkpoint.world_size() != worker_.num_ranks()) {
    console_.note(
        fmt::format("The checkpoint was made by {}, and this run has {}. The state is the same; sums round "
                    "differently from here on",
                    counted(checkpoint.world_size(), "rank"), worker_.num_ranks()));
  }
  if (state_.fused_micro_batches.value_or(fused_) != fused_) {
    console_.note(
        fused_ ? "The checkpoint's run computed the micro-batches of a step one by one, and this run computes them as "
                 "one. Sums round differently from here on. To avoid this, use --fuse-micro-batches off"
               : "The checkpoint's run computed the micro-batches of a step as one, and this run computes them one "
                 "by one. Sums round differently from here on");
  }
  state_.fused_micro_batches = fused_;
}

// Continues the run in the output folder. Checkpoints that are newer than `checkpoint` get the suffix `newer_are`,
// because they refer to records beyond the new end of metrics.jsonl. Collective.
void Trainer::resume(const Checkpoint& checkpoint, TrainState state, const std::vector<Change>& changes,
                     const char* newer_are) {
  const fs::path name = checkpoint_folder(settings_.output_dir, state.step);
  if (full_path(checkpoint.folder()) != full_path(name)) {
    throw UsageError("--resume",
                     fmt::format("{} was renamed: it may be superseded or damaged", checkpoint.folder().string()),
                     fmt::format("Rename it to {} first, or start a new run from it with another --output-dir",
                                 name.filename().string()));
  }
  restore(checkpoint, std::move(state));
  last_saved_step_ = state_.step;
  if (worker_.is_first()) {
    metrics_.emplace(MetricsLog::resume((output_dir_ / MetricsLog::kFileName).string(), state_.metrics_bytes));
  }
  set_checkpoints_aside(settings_.output_dir, worker_.world(), state_.step, newer_are,
                        [&](const std::string& text) { console_.note(text); });
  // The earlier run may have ended before it removed old checkpoints. No step has used the newest one yet.
  rotate(true);
  rotates_ = true;
  console_.note(fmt::format("Resuming from {} (step {} of {})", checkpoint.folder().string(), state_.step, num_steps_));
  const std::string text = checkpoint.trainer_state();
  const Record then = TrainState::fingerprint_in(text, state_file(checkpoint));
  if (changes.empty() || !then.contains("max_steps") || !then.contains("epochs")) return;
  const int64_t steps_then = total_steps(then["max_steps"].get<int64_t>(), then["epochs"].get<double>(), epochs_);
  if (steps_then != num_steps_) {
    console_.note(note_of_length(settings_, steps_then, num_steps_, state_.step, state_.num_updates));
  }
}

// Begins a new run from a checkpoint in another folder. Collective.
void Trainer::begin_elsewhere(const Checkpoint& checkpoint) {
  const std::string text = checkpoint.trainer_state(), where = state_file(checkpoint);
  const auto changes = changes_between(TrainState::fingerprint_in(text, where), fingerprint_);
  if (const auto forbidden = forbidden_among(changes, true); !forbidden.empty()) {
    throw UsageError(where, listed(forbidden),
                     "Use the values of the checkpoint's run, or take only its model with tessera export");
  }
  restore(checkpoint, TrainState::from_json(text, where));
  state_.origin = full_path(checkpoint.folder()).string();
  state_.best_metric.reset();  // the best checkpoint is not in this folder
  state_.best_step = 0;
  state_.health.sound_checkpoint = -1;  // nor is the last sound checkpoint (see TrainHealth)
  state_.stop_steps.clear();
  make_way();
  if (worker_.is_first()) {
    const fs::path source = checkpoint.folder().parent_path() / MetricsLog::kFileName,
                   log = output_dir_ / MetricsLog::kFileName;
    const auto bytes = static_cast<size_t>(state_.metrics_bytes);
    std::string records = fs::exists(source) ? read_file(source, {}) : "";
    const bool is_its_log = records.size() >= bytes && (bytes == 0 || records[bytes - 1] == '\n');
    if (!is_its_log) {
      console_.note(fmt::format("warning: {} does not hold the records up to step {}: {} begins with the next step",
                                source.string(), state_.step, log.string()));
    }
    records.resize(is_its_log ? bytes : 0);
    write_file_atomically(log, records);
    metrics_.emplace(MetricsLog::resume(log.string(), static_cast<int64_t>(records.size())));
  }
  console_.note(fmt::format("A new run from {} (step {} of {}). The search for the best model starts here",
                            checkpoint.folder().string(), state_.step, num_steps_));
  for (const Change& change : changes) console_.note("The checkpoint's run had " + change.shown());
}

void Trainer::start_again() {
  worker_.enter(Phase::load);
  state_.fused_micro_batches = fused_;
  for (const std::string& note : load_or_initialize(engine_, settings_, worker_.world(), worker_.pool())) {
    console_.note(note);
  }
  read_ahead_ = {};
  make_way();
  if (worker_.is_first()) {
    metrics_.emplace(MetricsLog::create((output_dir_ / MetricsLog::kFileName).string()));
  }
}

// With --overwrite, moves an earlier run in the output folder to a folder of its own. After that, with and without
// --overwrite, renames the checkpoints that are still in the output folder. Called when the new run has loaded its
// model. Collective.
void Trainer::make_way() {
  on_all_ranks(worker_.world(), "moving an earlier run aside", [&]() -> std::string {
    if (worker_.is_first() && settings_.overwrite) move_run_aside(settings_.output_dir);
    return "";
  });
  set_checkpoints_aside(settings_.output_dir, worker_.world(), -1, "superseded",
                        [&](const std::string& text) { console_.note(text); });
}

// Removes the runs that --overwrite moved aside. Called when this run has written its own results.
void Trainer::forget_overwritten_runs() const {
  if (!worker_.is_first() || !settings_.overwrite) return;
  for (const std::string& name : names_in_folder(output_dir_)) {
    if (is_overwritten_run(name)) remove_folder_atomically(output_dir_ / name);
  }
}

}  // namespace tessera
