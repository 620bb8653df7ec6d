// Which blocks are checkpointed. A checkpointed block keeps only its input, and runs forward again in backward.
//
// With --activation-checkpointing N, the first N blocks that have a backward are checkpointed. Backward starts at the
// last block. When a checkpointed block computes its values again, backward has already freed the values of all later
// blocks. The peak of memory therefore contains values of L − N of the L blocks that have a backward, or of one block
// if all L blocks are checkpointed. If the last N blocks were checkpointed, the peak would contain the values of one
// more block: the last block would compute its values again while the first L − N blocks still keep their values.
#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

inline constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();

struct CheckpointedBlocks {
  int64_t first;  // the first block with a backward
  int64_t count;  // the N above; if fewer blocks have a backward, all of these blocks are checkpointed

  bool contains(int64_t block) const { return block >= first && block - first < count; }
};

}  // namespace tessera
