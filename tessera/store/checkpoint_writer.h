// Writes training checkpoints: folders "checkpoint-<step>" that exist only when all their bytes are on the disk.
//   rank-00000-of-00004.safetensors   one file per rank: its range of each array, as a tensor with the array's name
//   trainer_state.json, ...           texts of rank 0: the state, the model's config.json, the tokenizer's files
//   manifest.json                     sizes and checksums of all files above, and the ranges that each rank wrote; also
//                                     the files outside the checkpoint that hold frozen tensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/comm/communicator.h"
#include "tessera/store/manifest.h"

namespace tessera {

// Elements [begin, end) of a flat array. The range is empty if begin == end. An array contains the elements of all
// ranks. Its size does not depend on the number of ranks, because padding is not stored.
struct ArrayRange {
  std::string name;  // of the array: "parameters/root", "optimizer.m/block.0", ...
  int64_t total_elems = 0;
  int64_t begin = 0, end = 0;
};

// Receives a rank's part of a checkpoint. The rank first declares all its ranges, at most one range of each array. Then
// it writes the ranges in any order. It writes a range in one call, or in several calls from begin to end. The ranges
// of all ranks together must contain every element of each array exactly once.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;
  // `dtype` is the type in the file, the same on all ranks.
  virtual void declare(const ArrayRange& range, DType dtype) = 0;
  // Declares an array that the checkpoint does not hold, because files outside hold it. The run uses
  // its elements in the type `dtype`. The files are the same in all calls. Only rank 0's calls count.
  virtual void refer(const std::string& name, int64_t total_elems, DType dtype, const ReferencedFiles& files) = 0;
  // Writes the next elements of a range from host memory. Elements of another floating-point type are converted to the
  // declared type. The caller may reuse the memory of `values` on return. Throws RunError.
  virtual void write(std::string_view name, const View& values) = 0;
  // Adds a file with this name, which may be "subfolder/file". Only rank 0's texts are used; texts of other ranks are
  // ignored. Throws RunError.
  virtual void add_text(std::string_view name, std::string_view text) = 0;
};
using WritePart = std::function<void(CheckpointPart& part)>;

// All ranks together write checkpoint-<step> in the output folder, which must be visible to all ranks. Collective.
//
// `write_part` fills in this rank's part and must not communicate with `world`. Any failure on any rank (a full disk, a
// lost permission, an exception of `write_part`) makes every rank throw the same error, which names the failed rank. In
// this case, nothing is left behind, and an earlier checkpoint of the same step is unchanged. If a rank dies, the
// other ranks throw the CommunicationError of `world`. Files may then be left behind; the next run removes them with
// remove_stale_temporaries(). The threads of `pool` hash, convert and write in parallel.
void write_checkpoint(const std::filesystem::path& output_folder, int64_t step, Communicator& world,
                      const WritePart& write_part, ThreadPool* pool = nullptr);

std::filesystem::path checkpoint_folder(const std::filesystem::path& output_folder, int64_t step);

}  // namespace tessera
