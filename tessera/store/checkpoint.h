// Reading checkpoints (checkpoint_writer.h says what they are made of), and which of them to use and to keep.
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

// A checkpoint whose every byte has been checked against its manifest. Any number of ranks may have written it.
class Checkpoint {
 public:
  // Collective: each rank checks a part of the bytes and all have the same outcome. DamageError names the file that is
  // missing or damaged. InputError: no such folder, of another version, or not the same for all ranks. Other errors:
  // as File, for what could not be read. The second form is that of a process that is alone.
  static Checkpoint open_verified(const std::filesystem::path& folder, Communicator& world, ThreadPool* pool = nullptr);
  static Checkpoint open_verified(const std::filesystem::path& folder, ThreadPool* pool = nullptr);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return manifest_.step; }
  int world_size() const { return manifest_.world_size; }  // that wrote it

  // Copies the elements of any range of an array, from whichever files hold them, into `target` (as many elements, host
  // memory), converting among floating-point types. Not collective; one thread at a time. InputError: no such array, or
  // of another size.
  void read_range(const ArrayRange& range, const View& target, ThreadPool* pool = nullptr) const;
  std::string text(std::string_view name) const;  // InputError: no such file in the checkpoint
  std::string trainer_state() const;              // the text "trainer_state.json"

 private:
  Checkpoint(std::filesystem::path folder, Manifest manifest);
  const ManifestFile& file(std::string_view name) const;
  const ManifestArray& array(std::string_view name) const;
  const SafetensorsFile& file_of(int rank) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  mutable std::map<int, SafetensorsFile> files_;  // by rank; opened when something is read from them
};

// The steps of the folders "checkpoint-<step>" in an output folder, ascending, whole or not. Errors as File: a folder
// that cannot be read is not one without checkpoints.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& output_folder);

// The newest checkpoint that is whole; nullopt if there are none at all. Each newer one that is damaged or incomplete
// is reported to `warn` on rank 0. Collective: rank 0 says which there are, and all have the same outcome. InputError:
// every one is damaged. A checkpoint that cannot be read is not passed over: its error is thrown.
std::optional<Checkpoint> latest_checkpoint(const std::filesystem::path& output_folder, Communicator& world,
                                            const std::function<void(const std::string&)>& warn,
                                            ThreadPool* pool = nullptr);

// What a user means by a path: the checkpoint there, or the newest whole one of a run's output folder, as above.
// Collective. InputError: neither.
Checkpoint find_checkpoint(const std::filesystem::path& path, Communicator& world,
                           const std::function<void(const std::string&)>& warn, ThreadPool* pool = nullptr);

// Which checkpoints stay.
struct Rotation {
  int keep = 0;                       // so many of the newest; 0: all
  std::set<int64_t> protected_steps;  // these in any case
  std::set<int64_t> replaced_steps;   // these only while nothing newer is whole
};

// Removes the other checkpoints. Only a checkpoint whose manifest is right and whose files have the right sizes counts
// or is removed, so that a damaged newest one does not cost the last good one; contents are not read again. Collective:
// rank 0 does it, and its RunError is that of all.
void rotate_checkpoints(const std::filesystem::path& output_folder, Communicator& world, const Rotation& rotation);

// Renames the checkpoints of later steps than `last_step`, whole or not: "checkpoint-40" becomes "checkpoint-40.<why>",
// or "checkpoint-40.<why>-2" where that name is taken. What changed goes to `note` on rank 0. Collective: rank 0 does
// it, and its RunError is that of all.
void set_checkpoints_aside(const std::filesystem::path& output_folder, Communicator& world, int64_t last_step,
                           const char* why, const std::function<void(const std::string&)>& note);

}  // namespace tessera
