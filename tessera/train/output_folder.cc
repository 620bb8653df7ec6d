#include "tessera/train/output_folder.h"

#include <fmt/format.h>

#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/store/process.h"

namespace tessera {

namespace fs = std::filesystem;

bool is_of_files(const Error& error) {
  return error.code() == ExitCode::kRunFailed || error.code() == ExitCode::kBadInput;
}

OutputFolder::OutputFolder(fs::path path, double owner_timeout_s, Communicator& world, Console& console)
    : given_(std::move(path)), owner_timeout_s_(owner_timeout_s), world_(world), console_(console), path_(given_) {
  if (world_.rank() == 0) lock_.emplace(given_, owner_timeout_s_);
}

bool OutputFolder::take(const std::function<bool()>& stop) {
  for (bool is_noted = false;;) {
    const auto waiting_for = on_all_ranks(world_, "the output folder", [&]() -> std::string {
      return lock_ && !lock_->try_take() ? lock_->waiting_for() : "";
    })[0];
    if (waiting_for.empty()) break;
    if (!std::exchange(is_noted, true)) console_.note(waiting_for + " (--owner-timeout)");
    if (stop()) return false;
    if (lock_) lock_->pause();
  }
  if (lock_) remove_stale_temporaries(given_, lock_->predecessor());
  return true;
}

void OutputFolder::find(int64_t step) {
  const fs::path now = on_all_ranks(world_, "the owner of the output folder", [&]() -> std::string {
    if (!lock_) return "";
    lock_->check_held();
    const auto folder = lock_->locate();
    if (!folder) {
      create_again(step);
      return "";
    }
    // A write that began under the earlier name fails, and cannot remove its own temporary files any more.
    if (*folder != path_) remove_stale_temporaries(*folder, ProcessIdentity::self());
    handlers_.settle(*folder, false);
    return folder->string();
  })[0];
  if (now == path_) return;
  moved_ = true;
  if (now.empty()) {
    path_ = given_;
    handlers_.lose();
    console_.note(
        fmt::format("warning: {} was removed during the run. Its checkpoints are lost. The run has created it again, "
                    "with metrics.jsonl, and continues there",
                    path_.string()));
  } else {
    path_ = now;
    console_.note(
        fmt::format("warning: the output folder is now {0}. The run continues there. To resume it, give "
                    "--output-dir {0}",
                    now.string()));
  }
}

void OutputFolder::create_again(int64_t step) {
  if (!names_in_folder(given_).empty()) {
    throw RunError(given_,
                   fmt::format("the run's folder was removed, and another folder has its name. The checkpoints of the "
                               "run are lost, and step {} is not saved",
                               step),
                   "Start the command again with another --output-dir: it begins with the first step");
  }
  lock_.emplace(given_, owner_timeout_s_);
  if (!lock_->try_take()) throw RunError(given_, lock_->waiting_for());
  handlers_.settle(given_, true);
}

void OutputFolder::write(int64_t step, const std::function<void()>& work) {
  find(step);
  try {
    work();
  } catch (const Error& error) {
    if (!is_of_files(error)) throw;
    find(step);
    if (!moved_) throw;
    work();
  }
}

void OutputFolder::write_checkpoint(int64_t step, const std::function<void()>& work) {
  bool moved = false;
  for (int tries_left = 4; tries_left > 0; --tries_left) {
    bool is_written = false;
    try {
      work();
      is_written = true;
    } catch (const Error& error) {
      if (!is_of_files(error)) throw;
      find(step);
      moved = moved || moved_;
      if (!moved || tries_left == 1) throw;
    }
    find(step);
    moved = moved || moved_;
    if (!std::exchange(moved_, false) && is_written) return;
  }
}

void OutputFolder::saving(const std::string& what, const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    if (!is_of_files(error)) throw;
    throw RunError("", error.what(), fmt::format("{} is not saved{}", what, words_of_continuation()));
  }
}

std::string OutputFolder::words_of_continuation() const {
  try {
    const auto folder = lock_ ? lock_->locate() : path_;
    if (!folder) return ". The output folder was removed, with its checkpoints";
    const auto steps = checkpoint_steps(*folder);
    if (steps.empty()) return ", and the run has no checkpoint: the same command begins again with the first step";
    const std::string newest = checkpoint_folder(*folder, steps.back()).string();
    return fmt::format(
        ". When the cause is gone, start the same command again{0}: it continues from {1}. To continue in another "
        "folder, add --resume {1} and another --output-dir",
        *folder == given_ ? "" : " with --output-dir " + folder->string(), newest);
  } catch (const Error&) {  // the caller reports a more important error
    return "";
  }
}

std::string OutputFolder::words_of_new_name() const {
  return path_ == given_ ? "" : " with --output-dir " + path_.string();
}

}  // namespace tessera
