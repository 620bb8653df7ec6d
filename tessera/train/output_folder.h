// The output folder of a run: who owns it, where it is now, and how to continue the run if it cannot be written.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"
#include "tessera/log/console.h"
#include "tessera/store/output_lock.h"

namespace tessera {

// All ranks write below the folder, and the first rank owns it. Calls are collective unless a comment says otherwise.
class OutputFolder {
 public:
  // `path`: --output-dir. `owner_timeout_s`: --owner-timeout. Rank 0 creates the folder, but does not take it yet.
  OutputFolder(std::filesystem::path path, double owner_timeout_s, Communicator& world, Console& console);

  // Takes the folder. Waits until it is known that no other run is alive there. Returns false if `stop` returns true,
  // which it must do on all ranks alike. Throws UsageError if another run is alive.
  bool take(const std::function<bool()>& stop);
  // Frees the folder for other runs. Not collective: nothing may be written to the folder afterwards.
  void release() { lock_.reset(); }

  const std::filesystem::path& given() const { return given_; }  // --output-dir
  const std::filesystem::path& path() const { return path_; }    // changes if the folder is renamed during the run

  // Find() calls these functions. `settle` runs on the first rank whenever the folder was found or created again, and
  // makes the run's open files be in `folder`. `lose` runs on all ranks if the folder was removed, with its
  // checkpoints.
  struct Handlers {
    std::function<void(const std::filesystem::path& folder, bool is_new)> settle;
    std::function<void()> lose;
  };
  void handle_moves(Handlers handlers) { handlers_ = std::move(handlers); }
  // Finds the folder. If it was renamed, the run continues in the renamed folder. If it was removed, the run creates it
  // again; its earlier checkpoints are lost. Call it before writing into the folder. Throws RunError if another run or
  // folder has its place; the error says that `step` is not saved.
  void find(int64_t step);
  // Runs `work`, which writes into the folder. Runs it again if it fails because the folder was renamed or removed.
  void write(int64_t step, const std::function<void()>& work);
  // The same for a checkpoint. If the folder was renamed or removed since the previous checkpoint, writes again: a
  // previous write in the background may have failed, or may have used another folder.
  void write_checkpoint(int64_t step, const std::function<void()>& work);
  // Whether the folder was renamed or removed since the previous checkpoint. Not collective.
  bool has_moved() const { return moved_; }

  // Runs `work`, which saves `what`. If it fails, the error also says that `what` is not saved, and how to continue.
  // Not collective.
  void saving(const std::string& what, const std::function<void()>& work) const;
  // " with --output-dir PATH" if the folder was renamed, otherwise "". Not collective.
  std::string words_of_new_name() const;

 private:
  std::string words_of_continuation() const;
  void create_again(int64_t step);

  const std::filesystem::path given_;
  const double owner_timeout_s_;
  Communicator& world_;
  Console& console_;
  std::filesystem::path path_;
  bool moved_ = false;
  Handlers handlers_;
  std::optional<OutputLock> lock_;  // first rank only
};

// Whether the error may be one of reading or writing files. If files vanish, it may be an InputError.
bool is_of_files(const Error& error);

}  // namespace tessera
