// The checkpoints of a training run: writes them and removes old ones.
#include "tessera/store/all_ranks.h"
#include "tessera/train/trainer.h"

namespace tessera {

void Trainer::checkpoint() {
  if (last_saved_step_ == state_.step) {
    rotates_ = true;  // an evaluation after the last save may have changed the best model
    return;
  }
  worker_.enter(Phase::save);
  check_parameters();
  if (progress_) progress_->pause();
  on_all_ranks(worker_.world(), "the owner of the output folder", [&]() -> std::string {
    if (lock_) lock_->check_held();
    return "";
  });
  if (metrics_) state_.metrics_bytes = metrics_->synced_size_bytes();
  state_.runtime_s = runtime_s();
  if (loss_scaler_) state_.loss_scale = loss_scaler_->state();
  state_.health.losses = loss_watch_.state();
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

// Removes old checkpoints. Keeps the newest ones, as many as --save-total-limit allows. A checkpoint that is still
// being written does not count toward this limit. Always keeps the checkpoint of the best model. If steps were skipped
// since the last update, or if the loss is not usual (LossWatch), also keeps the last sound checkpoint (TrainHealth):
// the parameters in newer checkpoints may be unusable, although they are finite. A checkpoint that exists only because
// a signal stopped the run is removed when a newer checkpoint is complete. With `keeps_sound`, keeps the last sound
// checkpoint in any case.
void Trainer::rotate(bool keeps_sound) {
  Rotation rotation{static_cast<int>(settings_.save_total_limit), {}, {}};
  const bool in_doubt = keeps_sound || loss_watch_.verdict() != LossWatch::Verdict::usual;
  if (in_doubt || state_.health.skipped_in_a_row > 0) rotation.protected_steps.insert(state_.health.sound_checkpoint);
  if (state_.best_metric) rotation.protected_steps.insert(state_.best_step);
  rotation.replaced_steps.insert(state_.stop_steps.begin(), state_.stop_steps.end());
  rotate_checkpoints(settings_.output_dir, worker_.world(), rotation);
}

void Trainer::finish_checkpoints() {
  if (background_) {
    background_->wait();
    background_.reset();  // frees its memory for the rest of the run
    rotates_ = true;
  }
  if (std::exchange(rotates_, false)) rotate();
}

}  // namespace tessera
