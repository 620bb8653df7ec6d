// An offloaded update can defer the moments of some blocks and write them during the next step. This file chooses the
// number of these blocks.
//
// AdamW on the host needs the exact norm of the gradients, so it can start only after backward. Until then the host is
// idle. Memory bandwidth limits the speed of the update, which moves 26 bytes per parameter if parameters have 16 bits.
// For some blocks, the update therefore writes only the parameters (18 bytes), which the next forward needs. During the
// next forward and backward, it computes the moments of these blocks again and writes them (18 bytes). This moves more
// bytes in total, but fewer bytes between two steps.
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

  // Starts an update and returns the number of blocks that it defers. The first update defers no block, and the second
  // defers one. Later updates defer as many as fit, at the last measured rate, into kShare of a window, but at least
  // one. The window is the shorter of the last two times from update_ended() to begin().
  int64_t begin(double now);
  // Call it when the immediate part of the update is done.
  void update_ended(double now) { ended_ = now; }
  // Call it when the deferred moments are written.
  void moments_ended(double now);

 private:
  static constexpr double kShare = 0.9;  // less than 1, because times differ from step to step

  std::vector<int64_t> elems_;
  int64_t late_elems_ = 0;  // deferred by the last update
  double rate_ = 0;         // deferred elements written per second
  double ended_ = -1;       // end of the last update's immediate part; negative: none yet
  double last_window_ = std::numeric_limits<double>::infinity();
};

}  // namespace tessera
