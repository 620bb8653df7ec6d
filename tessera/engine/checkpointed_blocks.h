// Which blocks are checkpointed: they keep only their input, and run forward again in backward.
//
// With N checkpointed blocks, these are the first N that have a backward. Backward starts at the last block, so the
// values that the later blocks keep are freed before the first checkpointed block computes its own values again. Each
// block in N therefore saves all of its values. If the last blocks were checkpointed, the values of one block would
// exist twice: kept by the earlier blocks, and computed again by the last one.
#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

inline constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();

struct CheckpointedBlocks {
  int64_t first;  // the first block with a backward
  int64_t count;  // any number from the blocks' number on means all

  bool contains(int64_t block) const { return block >= first && block - first < count; }
};

}  // namespace tessera
