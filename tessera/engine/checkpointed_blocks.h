// Which blocks are checkpointed. A checkpointed block keeps only its input, and runs forward again in backward.
//
// The N checkpointed blocks are the first N blocks that have a backward. Backward starts at the last block. When a
// checkpointed block computes its values again, backward has already freed the values of all later blocks. Each
// checkpointed block therefore lowers the peak by the size of all its values. If the last blocks were checkpointed, the
// peak would be higher by one block: the last block would compute its values again while the earlier blocks still keep
// theirs.
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
