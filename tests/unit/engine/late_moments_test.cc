#include "tessera/engine/late_moments.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// Updates take one second. After each update, moments are written at 100 elements per second. The next update begins
// after a time that the test chooses, or when the moments are written. Blocks have 10 elements.
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

TEST(LateMoments, UseMostOfTheTimeBetweenUpdates) {
  Updates run;
  EXPECT_EQ(run.step(0.47), 0);
  EXPECT_EQ(run.step(0.47), 1);
  EXPECT_EQ(run.step(0.47), 4);
  EXPECT_EQ(run.step(60), 4);    // then an evaluation
  EXPECT_EQ(run.step(0.36), 4);  // does not count
  EXPECT_EQ(run.step(0.36), 3);
  EXPECT_EQ(run.step(0.05), 3);
  EXPECT_EQ(run.step(0.05), 2);  // the three took 0.3
  EXPECT_EQ(run.step(0.05), 1);
  EXPECT_EQ(run.step(0.05), 1);  // this measures how fast they are written
  EXPECT_EQ(run.step(60), 1);
  EXPECT_EQ(run.step(60), 1);
  EXPECT_EQ(run.step(60), 8);  // the total number of blocks
}

TEST(LateMoments, RecoverFromASlowStep) {
  Updates run;
  for (int i = 0; i < 3; ++i) run.step(0.47);
  EXPECT_EQ(run.step(0.47, 10), 4);  // the process was stopped meanwhile
  EXPECT_EQ(run.step(0.47), 1);
  EXPECT_EQ(run.step(0.47), 4);
}

}  // namespace
}  // namespace tessera
