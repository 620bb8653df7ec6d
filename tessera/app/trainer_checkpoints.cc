// A training run's checkpoints: going on from one, writing them, keeping the newest.
#include <fmt/format.h>

#include "tessera/app/model_files.h"
#include "tessera/app/trainer.h"
#include "tessera/store/atomic_folder.h"

namespace tessera {

namespace fs = std::filesystem;

void Trainer::resume_or_start() {
  if (settings_.resume == "none" || !resume()) start_anew();
}

bool Trainer::resume() {
  worker_.enter(Phase::resume);
  const auto warn = [&](const std::string& text) { console_.note("warning: " + text); };
  const std::optional<Checkpoint> checkpoint =
      settings_.resume == "auto" ? latest_checkpoint(settings_.output_dir, worker_.world(), warn, &worker_.pool())
                                 : find_checkpoint(settings_.resume, worker_.world(), warn, &worker_.pool());
  if (!checkpoint) return false;
  std::error_code ignored;  // what is not there is not the same
  if (!fs::equivalent(checkpoint->folder(), checkpoint_folder(settings_.output_dir, checkpoint->step()), ignored)) {
    throw UsageError(
        "--resume",
        fmt::format("{} is no checkpoint of the output folder {}", checkpoint->folder().string(), settings_.output_dir),
        "Give the output folder of the run that made it");
  }
  const std::string where = (checkpoint->folder() / "trainer_state.json").string();
  state_ = TrainState::from_json(checkpoint->trainer_state(), fingerprint_, where);
  restore_checkpoint(*checkpoint, engine_, true, worker_.pool());
  runtime_before_s_ = state_.runtime_s;
  last_saved_step_ = state_.step;
  engine_.set_num_updates(state_.num_updates);
  if (loss_scaler_ && state_.loss_scale) loss_scaler_->restore(*state_.loss_scale);
  if (checkpoint->world_size() != worker_.num_ranks()) {
    console_.note(
        fmt::format("The checkpoint was made by {} ranks, and this run has {}: the same state, and sums that "
                    "round otherwise from here on",
                    checkpoint->world_size(), worker_.num_ranks()));
  }
  if (state_.fused_micro_batches.value_or(fused_) != fused_) {
    console_.note(
        fused_ ? "The checkpoint's run computed a step's micro-batches one by one, and this run computes them as "
                 "one: sums that round otherwise from here on. --fuse-micro-batches off keeps them apart"
               : "The checkpoint's run computed a step's micro-batches as one, and this run computes them one "
                 "by one: sums that round otherwise from here on");
  }
  state_.fused_micro_batches = fused_;
  if (worker_.is_first()) {
    metrics_.emplace(
        MetricsLog::resume((fs::path(settings_.output_dir) / "metrics.jsonl").string(), state_.metrics_bytes));
  }
  forget_steps_after(state_.step);
  rotate();  // as the run that made it may not have come to do
  console_.note(
      fmt::format("Resuming from {} (step {} of {})", checkpoint->folder().string(), state_.step, num_steps_));
  return true;
}

// Checkpoints of later steps, damaged or of a run that is not continued, would point beyond the end of metrics.jsonl.
void Trainer::forget_steps_after(int64_t last) {
  if (!worker_.is_first()) return;
  for (const int64_t step : checkpoint_steps(settings_.output_dir)) {
    if (step <= last) continue;
    const fs::path folder = checkpoint_folder(settings_.output_dir, step);
    console_.note(fmt::format("Removing {}, which this run does not go on from", folder.string()));
    remove_folder_atomically(folder);
  }
}

void Trainer::start_anew() {
  worker_.enter(Phase::load);
  state_.fused_micro_batches = fused_;
  load_or_initialize(engine_, settings_, worker_.world(), worker_.pool());
  read_ahead_ = {};
  if (settings_.resume == "none") forget_steps_after(-1);
  if (worker_.is_first()) {
    metrics_.emplace(MetricsLog::create((fs::path(settings_.output_dir) / "metrics.jsonl").string()));
  }
}

void Trainer::checkpoint() {
  if (last_saved_step_ == state_.step) return;
  worker_.enter(Phase::save);
  check_parameters();
  if (progress_) progress_->pause();
  if (metrics_) state_.metrics_bytes = metrics_->synced_size_bytes();
  state_.runtime_s = runtime_s();
  if (loss_scaler_) state_.loss_scale = loss_scaler_->state();
  const auto write_part = [&](CheckpointPart& part) { fill_checkpoint(part, engine_, state_, fingerprint_); };
  if (background_) {
    background_->save(settings_.output_dir, state_.step, write_part, &worker_.pool());
  } else {
    write_checkpoint(settings_.output_dir, state_.step, worker_.world(), write_part, &worker_.pool());
  }
  last_saved_step_ = state_.step;
  rotates_ = true;
  if (progress_) progress_->resume();
}

// A checkpoint that is still being written does not count yet. While updates are skipped, the last checkpoint that was
// seen to be sound stays too: parameters may be finite and too large to compute with.
void Trainer::rotate() {
  if (settings_.save_total_limit == 0) return;
  std::set<int64_t> kept;
  if (state_.health.skipped_in_a_row > 0) kept.insert(state_.health.sound_checkpoint);
  if (settings_.load_best_model_at_end && state_.best_metric) kept.insert(state_.best_step);
  rotate_checkpoints(settings_.output_dir, worker_.world(), static_cast<int>(settings_.save_total_limit), kept);
}

void Trainer::finish_checkpoints() {
  if (background_) {
    background_->wait();
    background_.reset();  // its memory is free for what is yet to do
    rotates_ = true;
  }
  if (std::exchange(rotates_, false)) rotate();
}

}  // namespace tessera
