// How many blocks' moments an offloaded update leaves for the next backward pass.
//
// The exact norm lets AdamW on the host begin after backward alone, and until then the host has nothing to do. What it
// is bound by is memory: 26 bytes a parameter in 16 bits. Of some blocks it therefore writes the parameters alone, for
// which the next forward waits (18 bytes), and computes the moments again to write them while that step's backward runs
// (18 bytes): more bytes, but fewer on the way from one step to the next.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera {

// Times are seconds of any one clock.
class LateMoments {
 public:
  // Elements of each block, in the order in which blocks are left late.
  explicit LateMoments(std::vector<int64_t> elems) : elems_(std::move(elems)) {}

  // An update begins. Returns how many blocks it leaves late: none the first time, then one, and then one or as many as
  // take kShare of the time between the last updates, as fast as the last ones were written.
  int64_t begin(double now);
  // What the update does at once is done.
  void update_ended(double now) { ended_ = now; }
  // What it has left late is done.
  void moments_ended(double now);

 private:
  static constexpr double kShare = 0.9;  // the rest is for times that differ from step to step

  std::vector<int64_t> elems_;
  int64_t late_elems_ = 0;  // of the last update
  double rate_ = 0;         // elements a second
  double ended_ = -1;       // of the last update; none yet
  double last_window_ = std::numeric_limits<double>::infinity();
};

}  // namespace tessera
