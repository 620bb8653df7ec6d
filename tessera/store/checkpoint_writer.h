// Writing checkpoints of training: folders "checkpoint-<step>" that exist only once every byte of them is on the disk.
//   rank-00000-of-00004.safetensors   one file a rank: its pieces of the arrays, as tensors of the arrays' names
//   trainer_state.json, ...           texts of rank 0
//   manifest.json                     sizes and checksums of all of them, and which rank holds which piece
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Elements [begin, end) of a flat array of the whole run ("parameters/root", "optimizer.m/block.0", ...), or none of
// them (begin == end). Sizes do not depend on the number of ranks: what pads an array to a multiple of it stays out.
struct ArrayRange {
  std::string name;
  int64_t total_elems = 0;
  int64_t begin = 0, end = 0;
};

// Where a rank puts its part of a checkpoint: it declares all its ranges, at most one of each array, then writes them
// in any order, each whole or in pieces that follow each other. Together the ranks must hold every element of each
// array exactly once.
class CheckpointPart {
 public:
  virtual ~CheckpointPart() = default;
  // `dtype` is that of the file, the same on all ranks.
  virtual void declare(const ArrayRange& range, DType dtype) = 0;
  // The next elements of a range, in the host's memory; of the declared type or, among floating-point types, of another
  // that is converted. They are not needed any more on return. RunError.
  virtual void write(std::string_view name, const View& values) = 0;
  // A file of this name; rank 0's counts, those of other ranks are ignored. RunError.
  virtual void add_text(std::string_view name, std::string_view text) = 0;
};
using WritePart = std::function<void(CheckpointPart& part)>;

// Writes checkpoint-<step> of the output folder, which all ranks must see, all of them at once. Collective.
//
// `write_part` fills in this rank's part and must not communicate with `world`. Whatever fails on any rank (a full
// disk, a lost permission, an exception of `write_part`), every rank throws the same error, which names the rank,
// nothing is left behind, and an earlier checkpoint of the same step stays as it was. A rank that dies leaves the
// others with the CommunicationError of `world`; remove_stale_temporaries() of the next run then removes what is left.
// `pool` hashes, converts and writes in parallel.
void write_checkpoint(const std::filesystem::path& output_folder, int64_t step, Communicator& world,
                      const WritePart& write_part, ThreadPool* pool = nullptr);

std::filesystem::path checkpoint_folder(const std::filesystem::path& output_folder, int64_t step);

}  // namespace tessera
