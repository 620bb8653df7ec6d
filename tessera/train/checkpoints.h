// The checkpoints of a training run: when they are on the disk, and which ones stay.
#pragma once

#include <memory>
#include <utility>

#include "tessera/base/thread_pool.h"
#include "tessera/store/background_checkpoint.h"
#include "tessera/store/checkpoint.h"
#include "tessera/train/output_folder.h"

namespace tessera {

// All calls are collective, except those that only return a value.
class Checkpoints {
 public:
  // Writes to `folder`. If `background` is not null, it writes the checkpoints.
  Checkpoints(OutputFolder& folder, Communicator& world, ThreadPool& pool,
              std::unique_ptr<BackgroundCheckpoint> background = nullptr);

  // The step of the newest checkpoint in the folder; -1: none.
  int64_t last_step() const { return last_step_; }
  // The run continues from the checkpoint of `step`, or has none (-1).
  void set_last_step(int64_t step) { last_step_ = step; }

  // Writes the checkpoint of `step`, or begins to write it in the background. `write_part`: see write_checkpoint().
  void save(int64_t step, const WritePart& write_part);
  // Waits for the checkpoint that is written in the background.
  void wait();
  // Waits for the background and ends it, which frees its memory. If the folder moved while the checkpoint of `step`
  // was written, writes it again, unless `write_part` is empty.
  void finish(int64_t step, const WritePart& write_part);
  // Whether a thread may still write a checkpoint.
  bool in_background() const { return background_ != nullptr; }
  bool is_writing() const { return background_ && background_->is_writing(); }

  // Old checkpoints are removed after the next step, when a step has used the newest one, or at the end of the run.
  void rotate_later() { rotates_ = true; }
  bool take_rotation() { return std::exchange(rotates_, false); }
  // Removes the checkpoints that `rotation` does not keep.
  void rotate(int64_t step, const Rotation& rotation);

 private:
  void write(int64_t step, const WritePart& write_part, bool in_background);

  OutputFolder& folder_;
  Communicator& world_;
  ThreadPool& pool_;
  std::unique_ptr<BackgroundCheckpoint> background_;
  int64_t last_step_ = -1;
  bool rotates_ = false;
};

}  // namespace tessera
