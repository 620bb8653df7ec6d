// An offloaded update can defer the moments of some blocks and write them during the next step. This file chooses the
// number of these blocks.
//
// AdamW on the host needs the exact norm of the gradients, so it can start only after backward. Until backward ends,
// the host is idle. Memory bandwidth limits the speed of the update, which moves 26 bytes per parameter if parameters
// have 16 bits. For some blocks, the update therefore first writes only the parameters, which the next forward needs.
// This moves 18 bytes per parameter. During the next forward and backward, the host computes the moments of these
// blocks again and writes them, which moves another 18 bytes. Both parts together move more than 26 bytes, but fewer
// bytes move between backward and the next forward.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera {

// All times are in seconds and from the same clock.
class LateMoments {
 public:
  // `elems`: the number of elements of each block, in the order in which blocks are deferred.
  explicit LateMoments(std::vector<int64_t> elems) : elems_(std::move(elems)) {}

  // Starts an update and returns the number of blocks whose moments it defers. The first update defers no block, and
  // the second update defers one block. Each later update defers the largest number of blocks whose moments the
  // host can write in the time kShare · window at the last measured rate, but at least one block. A window is the time
  // from update_ended() to the next begin(). The shorter of the last two windows counts.
  int64_t begin(double now);
  // Call it when the update has done everything except the deferred moments.
  void update_ended(double now) { ended_ = now; }
  // Call it when the deferred moments are written.
  void moments_ended(double now);

 private:
  static constexpr double kShare = 0.9;  // less than 1, because times differ from step to step

  std::vector<int64_t> elems_;
  int64_t late_elems_ = 0;  // elements of the blocks that the last update deferred
  double rate_ = 0;         // deferred elements written per second
  double ended_ = -1;       // time of the last update_ended(); negative before the first call
  double last_window_ = std::numeric_limits<double>::infinity();
};

}  // namespace tessera
