#include "tessera/train/checkpoints.h"

#include <fmt/format.h>

namespace tessera {

Checkpoints::Checkpoints(OutputFolder& folder, Communicator& world, ThreadPool& pool,
                         std::unique_ptr<BackgroundCheckpoint> background)
    : folder_(folder), world_(world), pool_(pool), background_(std::move(background)) {}

void Checkpoints::write(int64_t step, const WritePart& write_part, bool in_background) {
  folder_.saving(fmt::format("Step {}", step), [&] {
    folder_.write_checkpoint(step, [&] {
      if (in_background) {
        background_->save(folder_.path(), step, write_part, &pool_);
      } else {
        tessera::write_checkpoint(folder_.path(), step, world_, write_part, &pool_);
      }
    });
  });
}

void Checkpoints::save(int64_t step, const WritePart& write_part) {
  write(step, write_part, background_ != nullptr);
  last_step_ = step;
  rotates_ = true;
}

void Checkpoints::wait() {
  if (background_) background_->wait();
}

void Checkpoints::finish(int64_t step, const WritePart& write_part) {
  if (!background_) return;
  folder_.saving("The last checkpoint", [&] {
    try {
      background_->wait();
    } catch (const Error& error) {
      if (!is_of_files(error)) throw;
      folder_.find(step);
      if (!folder_.has_moved()) throw;
    }
  });
  folder_.find(step);
  if (folder_.has_moved() && write_part) write(step, write_part, false);
  background_.reset();
  rotates_ = true;
}

void Checkpoints::rotate(int64_t step, const Rotation& rotation) {
  folder_.write(step, [&] { rotate_checkpoints(folder_.path(), world_, rotation); });
}

}  // namespace tessera
