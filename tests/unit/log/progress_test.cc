#include "tessera/log/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "screen.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

ProgressState some_state() {
  return {.description = "Training",
          .step = 370,
          .total_steps = 1000,
          .loss = 4.895,
          .units_per_s = 73.21,
          .unit = "samples",
          .left_s = 83};
}

TEST(RenderBar, ShowsEverythingIfItFits) {
  EXPECT_EQ(render_bar(some_state(), {.interactive = true, .color = false, .unicode = true}, 100),
            "Training   37%  ━━━━━━━━━━━╸────────────────────   370/1000  loss 4.895  73.2 samples/s  1:23 left");
  EXPECT_EQ(render_bar(some_state(), kPlainTerminal, 100),
            "Training   37%  [###########...................]   370/1000  loss 4.895  73.2 samples/s  1:23 left");
}

TEST(RenderBar, ColoursOnlyTheBar) {
  EXPECT_EQ(render_bar({.description = "Go", .step = 1, .total_steps = 2, .unit = "rows"}, kFullTerminal, 24),
            "Go   50%  \x1b[36m━━━━╸\x1b[0m\x1b[2m────\x1b[0m  1/2");
  EXPECT_EQ(render_bar({.description = "Go", .step = 2, .total_steps = 2, .unit = "rows"}, kFullTerminal, 24),
            "Go  100%  \x1b[36m━━━━━━━━━\x1b[0m  2/2");
}

TEST(RenderBar, OmitsPartsUntilItFits) {
  const auto at = [](int columns) { return render_bar(some_state(), kPlainTerminal, columns); };
  EXPECT_EQ(at(74), "Training   37%  [##....]   370/1000  loss 4.895  73.2 samples/s  1:23 left");
  EXPECT_EQ(at(73), "Training   37%   370/1000  loss 4.895  73.2 samples/s  1:23 left");
  EXPECT_EQ(at(60), "Training   37%   370/1000  loss 4.895  1:23 left");
  EXPECT_EQ(at(45), "Training   37%   370/1000  loss 4.895");
  EXPECT_EQ(at(30), "Training   37%   370/1000");
  EXPECT_EQ(at(20), " 37%   370/1000");
  EXPECT_EQ(at(4), " 37%");
  EXPECT_EQ(at(0), "");
  for (int columns = 0; columns < 120; ++columns) EXPECT_LE(display_width(at(columns)), columns);
}

TEST(RenderBar, AcceptsUnusualStates) {
  EXPECT_EQ(render_bar({.description = "Empty", .unit = "rows"}, kPlainTerminal, 20), "Empty  100%  0/0");
  ProgressState state = some_state();
  state.step = 2000;
  state.loss = -std::nan("");
  state.left_s = -5;
  EXPECT_EQ(render_bar(state, kPlainTerminal, 60), "Training  100%  2000/1000  loss nan  --:-- left");
}

TEST(FormatPerplexity, HasAWordForEveryLoss) {
  EXPECT_EQ(format_perplexity(0), "1.000");
  EXPECT_EQ(format_perplexity(2), "7.389");
  EXPECT_EQ(format_perplexity(3.5), "33.12");
  EXPECT_EQ(format_perplexity(6), "403.4");
  EXPECT_EQ(format_perplexity(12.5), "2.68e+05");
  EXPECT_EQ(format_perplexity(700), "1.01e+304");
  EXPECT_EQ(format_perplexity(63830), "over 1e304");
  EXPECT_EQ(format_perplexity(INFINITY), "over 1e304");
  EXPECT_EQ(format_perplexity(-std::nan("")), "nan");
}

TEST(RenderProgressLine, ShowsTheSameAsText) {
  EXPECT_EQ(render_progress_line(some_state()), "Training 370/1000 (37%), loss 4.895, 73.2 samples/s, 1:23 left");
  EXPECT_EQ(render_progress_line({.description = "Tokenizing", .step = 0, .total_steps = 5, .unit = "rows"}),
            "Tokenizing 0/5 (0%)");
}

// Two consoles write to the same screen. One treats the screen as a terminal, the other treats it as a file. The test
// sets the clock.
class ProgressTest : public ::testing::Test {
 protected:
  ProgressOptions options(int64_t total_steps) {
    return {.description = "Training", .total_steps = total_steps, .now_s = [this] { return now_s_; }};
  }
  size_t count_redraws() const {
    size_t count = 0;
    for (size_t at = 0; (at = screen_.raw().find("\rTraining", at)) != std::string::npos; ++at) ++count;
    return count;
  }

  double now_s_ = 1000;
  Screen screen_;
  Console terminal_{screen_.output(kPlainTerminal), screen_.output(kPlainTerminal)};
  Console file_{screen_.output({}), screen_.output({})};
};

TEST_F(ProgressTest, BarStaysBelowOtherOutputAndEndsAsALine) {
  Progress progress(terminal_, options(4));
  EXPECT_THAT(screen_.lines(), ElementsAre("Training    0%  [..............................]  0/4"));
  for (int step = 1; step <= 4; ++step) {
    now_s_ += 2;
    progress.update(step, 16, 5.0 / step);
    if (step == 2) terminal_.print("{'loss': 2.5}");
  }
  EXPECT_THAT(
      screen_.lines(),
      ElementsAre("{'loss': 2.5}", "Training  100%  [#################]  4/4  loss 1.250  8.00 samples/s  0:00 left"));
  progress.finish();
  EXPECT_THAT(screen_.lines(), ElementsAre("{'loss': 2.5}", "Training 4/4, loss 1.250, in 0:08", ""));
}

TEST_F(ProgressTest, RedrawsAtMostTenTimesASecond) {
  Progress progress(terminal_, options(1000));
  for (int step = 1; step <= 1000; ++step) {
    now_s_ += 0.015625;  // 64 steps per second. At least 0.1 s must pass between redraws: 7 steps (0.109 s)
    progress.update(step, 1);
  }
  EXPECT_EQ(count_redraws(), 1u + 1000 / 7);
}

TEST_F(ProgressTest, BarDisappearsWhenTheLoopFails) {
  {
    Progress progress(terminal_, options(10));
    now_s_ += 1;
    progress.update(1, 4);
  }
  terminal_.note("error: it broke");
  EXPECT_THAT(screen_.lines(), ElementsAre("error: it broke", ""));
}

TEST_F(ProgressTest, PausesDoNotCountAsTime) {
  Progress progress(terminal_, options(4));
  now_s_ += 1;
  progress.update(1, 8);
  now_s_ += 1;
  progress.update(2, 8);
  progress.pause();
  EXPECT_THAT(screen_.lines(), ElementsAre(""));
  {
    ProgressOptions inner = options(1);
    inner.description = "Evaluating";
    Progress evaluation(terminal_, inner);
    EXPECT_THAT(screen_.lines(), ElementsAre(::testing::StartsWith("Evaluating    0%")));
    now_s_ += 100;
    evaluation.update(1, 5);
  }
  progress.resume();
  EXPECT_THAT(screen_.lines(),
              ElementsAre("Training   50%  [##############...............]  2/4  8.00 samples/s  0:02 left"));
  now_s_ += 2;
  progress.update(4, 16);
  progress.finish();
  EXPECT_THAT(screen_.lines(), ElementsAre("Training 4/4, in 0:04", ""));
}

// Progress gives each step a weight, which halves every 15 s. In this test, steps take 1 s, and then 1/3 s during
// the last 15 s. The old rate of 1 step per second therefore has half of the weight, and the new rate of 3 has the
// other half. In continuous time, the mean is 2 steps per second. With single steps, the mean is slightly lower. A step
// of 1 s multiplies the weights of all earlier steps by q = 2^(-1/15), and a step of 1/3 s by r = 2^(-1/45). The sums
// of the weights are geometric series:
//
//   steps / seconds = (0.5 / (1 - q) + 0.5 / (1 - r)) / (0.5 / (1 - q) + 0.5 / (1 - r) / 3) = 1.9923
TEST_F(ProgressTest, RateForgetsTheOldRateByHalves) {
  ProgressOptions settings = options(2000);
  // Only the last step prints a line: it ends after 1015 s, and the previous step after 1014.7 s.
  settings.every_s = 1014.9;
  Progress progress(file_, settings);
  for (int step = 1; step <= 1045; ++step) {
    now_s_ += step <= 1000 ? 1.0 : 1.0 / 3;
    progress.update(step, 1);
  }
  EXPECT_EQ(screen_.raw(), "Training 1045/2000 (52%), 1.99 samples/s, 7:59 left\n");
  progress.finish();  // 1015 seconds
  EXPECT_EQ(screen_.lines().at(1), "Training 1045/2000, in 16:55");
}

TEST_F(ProgressTest, WithoutATerminalPrintsALineEveryFewSeconds) {
  ProgressOptions settings = options(100);
  settings.every_s = 20;
  Progress progress(file_, settings);
  for (int step = 1; step <= 6; ++step) {
    now_s_ += 8;
    progress.update(step, 2, 3.0);
  }
  progress.finish();
  EXPECT_EQ(screen_.raw(),
            "Training 3/100 (3%), loss 3.000, 0.25 samples/s, 12:56 left\n"
            "Training 6/100 (6%), loss 3.000, 0.25 samples/s, 12:32 left\n"
            "Training 6/100, loss 3.000, in 0:48\n");
}

TEST_F(ProgressTest, ResumedRunsCountFromTheirFirstStep) {
  ProgressOptions settings = options(100);
  settings.first_step = 50;
  settings.every_s = 1;
  Progress progress(file_, settings);
  now_s_ += 2;
  progress.update(51, 4);
  EXPECT_EQ(screen_.raw(), "Training 51/100 (51%), 2.00 samples/s, 1:38 left\n");
}

}  // namespace
}  // namespace tessera
