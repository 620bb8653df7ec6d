// Which values backward computes again, because forward does not keep them.
//
// A block can recompute all of its values, or only the values of parts: the outputs of the MLP's first products, and
// the output of attention (Recomputation).
//
// The first blocks that have a backward keep the least: first the blocks that keep only their input, and then the
// blocks that recompute parts. Both parts begin at the same block. Backward starts at the last block. When it reaches
// a block and computes the values of this block again, the values of all later blocks are already freed. If N of the L
// blocks with a backward keep only their input, the peak of memory therefore contains values of L − N blocks, or of one
// block if N is L. If the last N blocks kept only their input, the peak would contain the values of one more block: the
// last block would compute its values again while the first L − N blocks still keep their values. The same is true for
// the values of parts.
#pragma once

#include <cstdint>
#include <limits>

namespace tessera {

inline constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();

// Numbers of blocks, or kAllBlocks.
struct Recomputation {
  int64_t blocks = 0;      // keep only their input, and run forward again
  int64_t mlp = 0;         // do not keep the outputs of the MLP's first products
  int64_t attention = 0;   // do not keep the output of attention
  bool automatic = false;  // as much as the memory needs. Only for settings: a search (plan/fit.h) replaces it
  bool any() const { return blocks > 0 || mlp > 0 || attention > 0; }
  bool operator==(const Recomputation&) const = default;
};

// The blocks that a Recomputation means. If fewer blocks have a backward, all of these blocks are meant.
struct RecomputedBlocks {
  int64_t first;  // the first block with a backward
  Recomputation numbers;

  // Whether a block keeps only its input. It then recomputes no parts.
  bool whole(int64_t block) const { return block >= first && block - first < numbers.blocks; }
  bool mlp(int64_t block) const { return part(block, numbers.mlp); }
  bool attention(int64_t block) const { return part(block, numbers.attention); }

 private:
  bool part(int64_t block, int64_t number) const {
    return block >= first && !whole(block) && block - first - numbers.blocks < number;
  }
};

}  // namespace tessera
