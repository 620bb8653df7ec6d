// Checkpoints of training: folders "checkpoint-<step>" that exist only once every byte of them is on the disk.
//   rank-00000-of-00001.safetensors   one file a rank: its flat buffers, "parameters/root", "optimizer.m/h.0", ...
//   trainer_state.json, ...           texts of the caller
//   manifest.json                     names, sizes and checksums of all of them
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/manifest.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// Writes one checkpoint: declare every tensor, write each once in any order, add the texts, commit. A writer that is
// destroyed before commit() leaves nothing behind; an earlier checkpoint of the same step stays until commit().
class CheckpointWriter {
 public:
  // One rank writes at present: rank 0 of a world of 1. Errors of AtomicFolder.
  CheckpointWriter(const std::filesystem::path& output_folder, int64_t step, int rank, int world_size);

  void declare(std::string_view name, DType dtype, const Shape& shape);
  // `values` has the declared number of elements and lies in the host's memory. RunError.
  void write(std::string_view name, const View& values);
  void add_text(std::string_view name, std::string_view text);  // a file of this name. RunError
  void commit();                                                // RunError

 private:
  SafetensorsWriter& tensors();

  AtomicFolder folder_;
  Manifest manifest_;
  std::string rank_file_;
  std::vector<PlannedTensor> plan_;
  std::optional<SafetensorsWriter> tensors_;  // from the first write on
};

// A checkpoint whose every byte has been checked against its manifest.
class Checkpoint {
 public:
  // InputError names the file that is missing or damaged, or says that another world size wrote it.
  static Checkpoint open_verified(const std::filesystem::path& folder, ThreadPool* pool = nullptr);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return manifest_.step; }
  // The tensors of rank 0.
  const SafetensorsFile& tensors() const { return tensors_; }
  // InputError: no such tensor, or of another number of elements.
  void read_into(std::string_view name, const View& target, ThreadPool* pool = nullptr) const;
  std::string text(std::string_view name) const;  // InputError: no such file in the checkpoint
  std::string trainer_state() const;              // the text "trainer_state.json"

 private:
  Checkpoint(std::filesystem::path folder, Manifest manifest, SafetensorsFile tensors)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), tensors_(std::move(tensors)) {}

  std::filesystem::path folder_;
  Manifest manifest_;
  SafetensorsFile tensors_;
};

// The steps of the folders "checkpoint-<step>" in an output folder, ascending, whole or not.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& output_folder);
std::filesystem::path checkpoint_folder(const std::filesystem::path& output_folder, int64_t step);

// The newest checkpoint that is whole; nullopt if there is none. Each newer one that is damaged or incomplete is told
// to `warn`.
std::optional<Checkpoint> latest_checkpoint(const std::filesystem::path& output_folder,
                                            const std::function<void(const std::string&)>& warn,
                                            ThreadPool* pool = nullptr);

// Removes all checkpoints but the `keep` (at least 1) newest and those of the steps in `protected_steps`. Only a
// checkpoint whose manifest is right and whose files have the right sizes counts or is removed, so that a damaged
// newest one does not cost the last good one; contents are not read again. RunError.
void rotate_checkpoints(const std::filesystem::path& output_folder, int keep, const std::set<int64_t>& protected_steps);

}  // namespace tessera
