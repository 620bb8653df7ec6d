#include "tessera/train/slow_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace tessera {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

StepTime planned_step(double step_s, Busy bound = Busy::products) {
  StepTime time;
  time.step_s = step_s;
  time.part_s = {0.3 * step_s, 0.5 * step_s, 0.2 * step_s};
  time.busy_s[static_cast<size_t>(bound)] = step_s;
  return time;
}

MeasuredSteps steps_of(int count, double step_s) {
  MeasuredSteps steps;
  for (int i = 0; i < count; ++i) steps.add({.step_s = step_s});
  return steps;
}

TEST(MeasuredSteps, TheFirstOnesDoNotCount) {
  MeasuredSteps steps;
  for (const double s : {50.0, 40.0, 30.0}) steps.add({.step_s = s});
  EXPECT_EQ(steps.count(), 0);
  EXPECT_EQ(steps.record(), (Record{{"steps", 0}}));
  for (const double s : {1.0, 9.0, 2.0}) steps.add({.step_s = s, .data_s = s / 10, .part_s = PartSeconds{s, 0, 1}});
  EXPECT_EQ(steps.count(), 3);
  EXPECT_EQ(
      steps.record(),
      (Record{
          {"steps", 3}, {"step_s", 2.0}, {"data_s", 0.2}, {"forward_s", 2.0}, {"backward_s", 0.0}, {"update_s", 1.0}}));
}

TEST(MeasuredSteps, TheNewestOnesCount) {
  MeasuredSteps steps = steps_of(5000, 1);
  for (int i = 0; i < 600; ++i) steps.add({.step_s = 2});
  EXPECT_EQ(steps.count(), 1000);
  EXPECT_EQ(steps.median().step_s, 2);
}

TEST(MeasuredSteps, ASkippedStepIsOneOfTheFirst) {
  MeasuredSteps steps;
  for (int i = 0; i < 3; ++i) steps.skip();
  steps.add({.step_s = 1});
  steps.skip();
  EXPECT_EQ(steps.count(), 1);
}

// Steps are slow if there are enough of them, and their median is far above the plan, in relation and in time.
TEST(SlowSteps, AreFarAboveThePlan) {
  std::mt19937 random(5);
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  for (int turn = 0; turn < 500; ++turn) {
    const double planned_s = std::exp(draw(-9, 3)), ratio = draw(0.5, 2);
    const int count = static_cast<int>(draw(0, 40));
    const bool slow = count - 3 >= 10 && ratio >= 1.25 && planned_s * (ratio - 1) >= 2e-3;
    EXPECT_EQ(are_slow(planned_step(planned_s), steps_of(count, planned_s * ratio)), slow)
        << planned_s << " " << ratio << " " << count;
  }
  // A few slow steps, such as those after an evaluation, are not the median.
  MeasuredSteps steps = steps_of(20, 1);
  for (int i = 0; i < 8; ++i) steps.add({.step_s = 10});
  EXPECT_FALSE(are_slow(planned_step(1), steps));
  EXPECT_FALSE(are_slow(StepTime{}, steps_of(20, 1)));
}

class CauseTest : public testing::Test {
 protected:
  std::string warning() const { return warning_of_slow_steps(planned_, measured_, around_); }

  StepTime planned_ = planned_step(1);
  StepSeconds measured_{.step_s = 2, .data_s = 0.1, .part_s = PartSeconds{0.4, 1.3, 0.2}};
  Surroundings around_{.load = 8, .own_threads = 8, .num_cores = 64};
};

TEST_F(CauseTest, NamesThePartIfNoneIsEvident) {
  EXPECT_EQ(
      warning(),
      "warning: a step took 2 s, 2.00 times the planned 1 s. No cause is evident. The backward took 1.3 s, not 0.5 s");
  measured_.part_s.reset();
  EXPECT_THAT(warning(), EndsWith("No cause is evident"));
}

TEST_F(CauseTest, NamesTheData) {
  measured_.data_s = 0.6;
  around_.load = 100;
  EXPECT_EQ(warning(),
            "warning: a step took 2 s, 2.00 times the planned 1 s. Likely cause: the data: a step waits 0.6 s for its "
            "samples");
}

TEST_F(CauseTest, NamesTheClock) {
  around_.on_gpu = true;
  around_.clock_mhz = 1700, around_.peak_clock_mhz = 1980;  // as at a power limit
  EXPECT_THAT(warning(), HasSubstr("No cause"));
  around_.clock_mhz = 1200;
  EXPECT_THAT(warning(), EndsWith("Likely cause: the GPU's clock: 1200 MHz on average, 1980 MHz at most"));
  around_.clocks_reduced_by = "heat (driver)";
  EXPECT_THAT(warning(), EndsWith("Likely cause: the GPU reduces its clocks: heat (driver)"));
}

TEST_F(CauseTest, NamesOtherProcesses) {
  around_.load = 20;
  EXPECT_THAT(warning(), EndsWith("other processes: the load of the machine is 20.0, and the run has 8 threads on 64 "
                                  "cores"));
  around_.on_gpu = true;  // enough cores are free to feed the GPU
  EXPECT_THAT(warning(), HasSubstr("No cause"));
  around_.load = 80;
  EXPECT_THAT(warning(), HasSubstr("other processes"));
  around_.gpu_bytes_of_others = int64_t{5} << 30;
  EXPECT_THAT(warning(), EndsWith("other programs on the GPU, which use 5.00 GiB of its memory"));
}

TEST_F(CauseTest, NamesTheLinkThatBoundsThePlan) {
  for (const auto& [busy, words] : {std::pair{Busy::to_device, "PCIe"},
                                    {Busy::to_host, "PCIe"},
                                    {Busy::file, "disk"},
                                    {Busy::network, "tessera nettest"}}) {
    planned_ = planned_step(1, busy);
    EXPECT_THAT(warning(), HasSubstr(words));
  }
}

// Whatever is measured, the warning is one line with both times and one explanation.
TEST_F(CauseTest, IsOneLine) {
  std::mt19937 random(6);
  const auto draw = [&](double high) { return std::uniform_real_distribution<double>(0, high)(random); };
  for (int turn = 0; turn < 500; ++turn) {
    planned_ = planned_step(0.01 + draw(10), Busy(static_cast<int>(draw(kNumBusy - 0.01))));
    measured_ = {.step_s = planned_.step_s * (1.25 + draw(3))};
    measured_.data_s = draw(measured_.step_s);
    if (turn % 2) measured_.part_s = PartSeconds{draw(5), draw(5), draw(5)};
    around_ = {.load = draw(200), .own_threads = 1 + static_cast<int>(draw(64)), .num_cores = 64};
    around_.on_gpu = turn % 3 == 0;
    if (around_.on_gpu) around_.clock_mhz = draw(2000), around_.peak_clock_mhz = 2000;
    const std::string text = warning();
    EXPECT_THAT(text, StartsWith("warning: a step took "));
    EXPECT_EQ(std::ranges::count(text, '\n'), 0);
    const bool likely = text.find("Likely cause: ") != text.npos, none = text.find("No cause is evident") != text.npos;
    EXPECT_NE(likely, none) << text;
    EXPECT_EQ(text.find("nan"), text.npos) << text;
  }
}

}  // namespace
}  // namespace tessera
