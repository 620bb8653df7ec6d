// The checkpoints of a training run: writes them and removes old ones. Follows the output folder if it is renamed.
#include <fmt/format.h>

#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/process.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace fs = std::filesystem;

// Call it before writing into the output folder. If the folder was renamed, the run continues in the renamed folder. If
// the folder was removed, the run creates it again; its earlier checkpoints are lost. Collective.
void Trainer::find_output_folder() {
  const fs::path now = on_all_ranks(session_.world(), "the owner of the output folder", [&]() -> std::string {
    if (!lock_) return "";
    lock_->check_held();
    const auto folder = lock_->locate();
    if (!folder) {
      make_output_folder_again();
      return "";
    }
    // A write that began under the earlier name fails, and cannot remove its own temporary files any more.
    if (*folder != output_dir_) remove_stale_temporaries(*folder, ProcessIdentity::self());
    if (metrics_) metrics_->keep_at((*folder / MetricsLog::kFileName).string());
    return folder->string();
  })[0];
  folder_moved_ = folder_moved_ || now != output_dir_;
  if (now.empty()) {
    output_dir_ = settings_.output_dir;
    last_saved_step_ = -1;
    state_.best_metric.reset();
    state_.best_step = 0;
    state_.health.sound_checkpoint = -1;
    state_.stop_steps.clear();
    console_.note(
        fmt::format("warning: {} was removed during the run. Its checkpoints are lost. The run has created it "
                    "again, with metrics.jsonl, and continues there",
                    output_dir_.string()));
  } else if (now != output_dir_) {
    output_dir_ = now;
    console_.note(
        fmt::format("warning: the output folder is now {}. The run continues there. To resume it, give "
                    "--output-dir {}",
                    now.string(), now.string()));
  }
}

void Trainer::make_output_folder_again() {
  const fs::path folder = settings_.output_dir;
  if (!names_in_folder(folder).empty()) {
    throw RunError(folder,
                   fmt::format("the run's folder was removed, and another folder has its name. The checkpoints of the "
                               "run are lost, and step {} is not saved",
                               state_.step),
                   "Start the command again with another --output-dir: it begins with the first step");
  }
  lock_.emplace(folder, settings_.owner_timeout);
  if (!lock_->try_take()) throw RunError(folder, lock_->waiting_for());
  if (metrics_) metrics_->keep_at((folder / MetricsLog::kFileName).string());
  write_file_atomically(folder / "resolved-config.toml", resolved_config_);
  if (trackers_) start_trackers();
}

// Whether the error may be one of reading or writing files. If files vanish, it may be an InputError.
static bool is_of_files(const Error& error) {
  return error.code() == ExitCode::kRunFailed || error.code() == ExitCode::kBadInput;
}

// Runs `work`, which writes results. If it fails, the error also says that `what` is not saved, and how to continue.
void Trainer::saving(const std::string& what, const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    if (!is_of_files(error)) throw;
    throw RunError("", error.what(), fmt::format("{} is not saved{}", what, words_of_continuation()));
  }
}

std::string Trainer::words_of_continuation() const {
  try {
    const auto located = lock_ ? lock_->locate() : output_dir_;
    if (!located) return ". The output folder was removed, with its checkpoints";
    const fs::path& folder = *located;
    const auto steps = checkpoint_steps(folder);
    if (steps.empty()) return ", and the run has no checkpoint: the same command begins again with the first step";
    const std::string newest = checkpoint_folder(folder, steps.back()).string();
    return fmt::format(
        ". When the cause is gone, start the same command again{}: it continues from {}. To continue in "
        "another folder, add --resume {} and another --output-dir",
        words_of_new_name(folder), newest, newest);
  } catch (const Error&) {  // the caller reports a more important error
    return "";
  }
}

std::string Trainer::words_of_new_name(const fs::path& folder) const {
  return folder == settings_.output_dir ? "" : " with --output-dir " + folder.string();
}

// Runs work of all ranks on the output folder. Runs it again if it failed because the folder was renamed or removed.
// Collective.
void Trainer::in_output_folder(const std::function<void()>& work) {
  find_output_folder();
  try {
    work();
  } catch (const Error& error) {
    if (!is_of_files(error)) throw;
    find_output_folder();
    if (!folder_moved_) throw;
    work();
  }
}

// Writes a checkpoint, or begins to write it in the background. If the folder was renamed or removed since the previous
// save, writes again: the previous write in the background may have failed, or may have used another folder.
// Collective.
void Trainer::write_checkpoint_now(bool in_background) {
  const auto write_part = [&](CheckpointPart& part) {
    fill_checkpoint(part, session_.engine(), state_, fingerprint_);
    // With these files, the checkpoint can be the --model of other runs.
    if (!session_.worker().is_first()) return;
    model_writer_->write_companions([&](std::string_view name, std::string_view text) { part.add_text(name, text); });
  };
  const auto write = [&] {
    if (in_background) {
      background_->save(output_dir_, state_.step, write_part, &session_.pool());
    } else {
      write_checkpoint(output_dir_, state_.step, session_.world(), write_part, &session_.pool());
    }
  };
  saving(fmt::format("Step {}", state_.step), [&] {
    bool moved = false;
    for (int tries_left = 4; tries_left > 0; --tries_left) {
      bool is_written = false;
      try {
        write();
        is_written = true;
      } catch (const Error& error) {
        if (!is_of_files(error)) throw;
        find_output_folder();
        moved = moved || folder_moved_;
        if (!moved || tries_left == 1) throw;
      }
      find_output_folder();
      moved = moved || folder_moved_;
      if (!std::exchange(folder_moved_, false) && is_written) return;
    }
  });
}

void Trainer::checkpoint() {
  find_output_folder();
  if (last_saved_step_ == state_.step) {
    rotates_ = true;  // an evaluation after the last save may have changed the best model
    return;
  }
  session_.worker().enter(Phase::save);
  check_parameters();
  if (progress_) progress_->pause();
  if (metrics_) state_.metrics_bytes = metrics_->synced_size_bytes();
  state_.runtime_s = runtime_s();
  if (loss_scaler_) state_.loss_scale = loss_scaler_->state();
  state_.health.losses = loss_watch_->state();
  write_checkpoint_now(background_ != nullptr);
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
  const bool in_doubt = keeps_sound || loss_watch_->verdict() != LossWatch::Verdict::usual;
  if (in_doubt || state_.health.skipped_in_a_row > 0) rotation.protected_steps.insert(state_.health.sound_checkpoint);
  if (state_.best_metric) rotation.protected_steps.insert(state_.best_step);
  rotation.replaced_steps.insert(state_.stop_steps.begin(), state_.stop_steps.end());
  in_output_folder([&] { rotate_checkpoints(output_dir_, session_.world(), rotation); });
}

void Trainer::finish_checkpoints() {
  if (background_) {
    saving("The last checkpoint", [&] {
      try {
        background_->wait();
      } catch (const Error& error) {
        if (!is_of_files(error)) throw;
        find_output_folder();
        if (!folder_moved_) throw;
      }
    });
    find_output_folder();
    const bool is_wanted = stop_signal_ != 0 || last_saved_step_ == state_.step;
    if (folder_moved_ && is_wanted) write_checkpoint_now(false);
    background_.reset();  // frees its memory for the rest of the run
    rotates_ = true;
  }
  if (std::exchange(rotates_, false)) rotate();
}

// With --load-best-model-at-end, loads the best model unless it is the last one. Collective.
void Trainer::load_best_model() {
  if (!settings_.load_best_model_at_end || !state_.best_metric || state_.best_step == state_.step) return;
  session_.worker().enter(Phase::resume);
  const fs::path best = checkpoint_folder(output_dir_, state_.best_step);
  const auto found = on_all_ranks(session_.world(), "the best model", [&] { return is_folder(best) ? "yes" : ""; });
  if (found[0].empty()) {
    console_.note(
        fmt::format("warning: {}, the checkpoint of the best model, was removed during the run. The saved model "
                    "is the last one",
                    best.string()));
    state_.best_metric.reset();
    state_.best_step = 0;
    return;
  }
  restore_checkpoint(Checkpoint::open_verified(best, session_.world(), &session_.pool()), session_.engine(), false,
                     session_.pool());
  console_.note(fmt::format("Loaded the best model, from step {}", state_.best_step));
}

}  // namespace tessera
