#include "tessera/engine/late_moments.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Simulates updates of 8 blocks with 10 elements each. step() simulates one update, which takes one second. It returns
// the number of late blocks: blocks whose moments are written after the end of the update. Writing takes
// `seconds_per_block` for each late block. The next update begins `window` seconds after the end of this update, but
// not before the moments are written. `window` therefore affects only the results of later calls.
class Updates {
 public:
  int64_t step(double window, double seconds_per_block = 0.1) {
    const int64_t count = late_.begin(now_);
    late_.update_ended(now_ += 1);
    const double written = seconds_per_block * static_cast<double>(count);
    late_.moments_ended(now_ + written);
    now_ += std::max(window, written);
    return count;
  }

 private:
  LateMoments late_{std::vector<int64_t>(8, 10)};
  double now_ = 0;
};

// The first update has no late blocks, and the second update has one. Each later update has as many late blocks as the
// host can write in 90 % of the shorter of the previous two windows: in 0.9 · 0.47 s, 4 blocks of 0.1 s each.
TEST(LateMoments, UseMostOfTheTimeBetweenUpdates) {
  Updates run;
  EXPECT_EQ(run.step(0.47), 0);
  EXPECT_EQ(run.step(0.47), 1);  // no rate of writing is known yet
  EXPECT_EQ(run.step(0.47), 4);
  EXPECT_EQ(run.step(60), 4);    // 60 s, as if an evaluation followed this update
  EXPECT_EQ(run.step(0.36), 4);  // the previous two windows are 0.47 s and 60 s; the shorter one counts
  EXPECT_EQ(run.step(0.36), 3);
  EXPECT_EQ(run.step(0.05), 3);
  EXPECT_EQ(run.step(0.05), 2);  // the previous window was 0.3 s, because writing three blocks took so long
  EXPECT_EQ(run.step(0.05), 1);
  EXPECT_EQ(run.step(0.05), 1);  // at least one, to measure the rate again
  EXPECT_EQ(run.step(60), 1);
  EXPECT_EQ(run.step(60), 1);
  EXPECT_EQ(run.step(60), 8);  // all blocks
}

TEST(LateMoments, RecoverFromASlowStep) {
  Updates run;
  for (int i = 0; i < 3; ++i) run.step(0.47);
  EXPECT_EQ(run.step(0.47, 10), 4);  // 10 s per block, as if the process had been stopped while it wrote moments
  EXPECT_EQ(run.step(0.47), 1);      // the measured rate is now only 0.1 blocks per second
  EXPECT_EQ(run.step(0.47), 4);      // the previous step measured the usual rate again
}

}  // namespace
}  // namespace tessera
