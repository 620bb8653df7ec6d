// How many blocks' moments an offloaded update defers to the next backward pass.
//
// AdamW on the host needs the exact norm, so it can start only after backward. Until then the host is idle. Memory
// bandwidth limits it: 26 bytes per parameter with 16-bit parameters. For some blocks, the update therefore writes only
// the parameters, which the next forward needs (18 bytes). It computes the moments again and writes them during the
// next backward (18 bytes). This moves more bytes in total, but fewer bytes between two steps.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera {

// Times are in seconds of one clock.
class LateMoments {
 public:
  // `elems`: elements of each block, in the order of deferral.
  explicit LateMoments(std::vector<int64_t> elems) : elems_(std::move(elems)) {}

  // Starts an update and returns the number of blocks that it defers. The first update defers none and the second
  // defers one. Later updates defer at least one: as many as fit into kShare of the time between the last updates, at
  // the last measured rate.
  int64_t begin(double now);
  // The immediate part of the update is done.
  void update_ended(double now) { ended_ = now; }
  // The deferred moments are written.
  void moments_ended(double now);

 private:
  static constexpr double kShare = 0.9;  // the rest allows for times that differ from step to step

  std::vector<int64_t> elems_;
  int64_t late_elems_ = 0;  // of the last update
  double rate_ = 0;         // elements per second
  double ended_ = -1;       // end of the last update; negative: none yet
  double last_window_ = std::numeric_limits<double>::infinity();
};

}  // namespace tessera
