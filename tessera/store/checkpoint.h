// Reads checkpoints (format: checkpoint_writer.h). Decides which checkpoints to use and which to keep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/comm/communicator.h"
#include "tessera/store/checkpoint_writer.h"
#include "tessera/store/manifest.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// A checkpoint. All its bytes were checked against its manifest. Any number of ranks may have written it.
class Checkpoint {
 public:
  // Collective: each rank checks a part of the bytes, and all ranks have the same outcome. Throws DamageError, which
  // names the missing or damaged file. Throws InputError: no such folder, another version, or different folders on
  // different ranks. If something cannot be read, throws errors as File does. The form without `world` is for a process
  // without other ranks.
  static Checkpoint open_verified(const std::filesystem::path& folder, Communicator& world, ThreadPool* pool = nullptr);
  static Checkpoint open_verified(const std::filesystem::path& folder, ThreadPool* pool = nullptr);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return manifest_.step; }
  int world_size() const { return manifest_.world_size; }  // of the run that wrote the checkpoint
  // The arrays of the checkpoint. Some may be referenced: their elements are in the files reference(), outside the
  // checkpoint.
  const std::vector<ManifestArray>& arrays() const { return manifest_.arrays; }
  const std::optional<ReferencedFiles>& reference() const { return manifest_.reference; }
  // Throws InputError: the checkpoint has no such array.
  const ManifestArray& array(std::string_view name) const;
  // Checks the files reference() as open_verified() checks those of the checkpoint. Throws InputError, which names the
  // missing or changed file. Collective.
  void check_reference(Communicator& world, ThreadPool* pool = nullptr) const;

  // Copies any range of an array into `target`, from all files that contain elements of the range. `target` has the
  // same number of elements and is in host memory. Converts between floating-point types. Not collective. Only one
  // thread at a time may call it. InputError: the checkpoint has no such array, or the array does not have
  // range.total_elems elements. Not for referenced arrays.
  void read_range(const ArrayRange& range, const View& target, ThreadPool* pool = nullptr) const;
  std::string text(std::string_view name) const;  // InputError: no such file in the checkpoint
  std::string trainer_state() const;              // the text of trainer_state.json

 private:
  Checkpoint(std::filesystem::path folder, Manifest manifest);
  const ManifestFile& file(std::string_view name) const;
  const SafetensorsFile& file_of(int rank) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  mutable std::map<int, SafetensorsFile> files_;  // by rank; each file is opened at its first read
};

// The steps of the folders "checkpoint-<step>" in an output folder, in ascending order. Incomplete checkpoints are
// included. Throws errors as File does: a folder that cannot be read is an error, not an empty list.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& output_folder);

// The newest complete checkpoint; nullopt if the folder has no checkpoints. On rank 0, calls `warn` for each newer
// checkpoint that is damaged or incomplete. Collective: rank 0 lists the checkpoints, and all ranks have the same
// outcome. InputError: all checkpoints are damaged. If a checkpoint cannot be read, throws the error and does not skip
// the checkpoint.
std::optional<Checkpoint> latest_checkpoint(const std::filesystem::path& output_folder, Communicator& world,
                                            const std::function<void(const std::string&)>& warn,
                                            ThreadPool* pool = nullptr);

// Finds the checkpoint that a user's path means: the path itself, or the newest complete one in a run's output folder.
// Collective. InputError: the path is neither.
Checkpoint find_checkpoint(const std::filesystem::path& path, Communicator& world,
                           const std::function<void(const std::string&)>& warn, ThreadPool* pool = nullptr);

// Which checkpoints to keep.
struct Rotation {
  int keep = 0;                       // the number of newest checkpoints to keep; 0: all
  std::set<int64_t> protected_steps;  // always kept
  std::set<int64_t> replaced_steps;   // removed when a newer checkpoint is complete
};

// Removes the checkpoints that `rotation` does not keep. Only checkpoints with a valid manifest and the right file
// sizes count toward `keep`, and only these are removed. If the newest checkpoint is damaged, the last good one
// therefore stays. A checkpoint with files that its manifest does not list also stays. Of each checkpoint, reads only
// the manifest and the sizes of the files. Collective: rank 0 does the work, and all ranks throw its error.
void rotate_checkpoints(const std::filesystem::path& output_folder, Communicator& world, const Rotation& rotation);

// Renames all checkpoints with a step after `last_step`, including incomplete ones. "checkpoint-40" becomes
// "checkpoint-40.<why>", or "checkpoint-40.<why>-2" if that name exists. On rank 0, calls `note` for each renamed
// checkpoint. Collective: rank 0 does the work, and all ranks throw its error.
void set_checkpoints_aside(const std::filesystem::path& output_folder, Communicator& world, int64_t last_step,
                           const char* why, const std::function<void(const std::string&)>& note);

}  // namespace tessera
