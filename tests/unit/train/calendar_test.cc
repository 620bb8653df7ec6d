#include "tessera/train/calendar.h"

#include <gtest/gtest.h>

#include "tessera/device/device.h"

namespace tessera {
namespace {

// The steps after which `happens` is true, as "1 3 4".
std::string steps_of(const Calendar& calendar, bool (Calendar::*happens)(int64_t) const) {
  std::string text;
  for (int64_t step = 1; step <= calendar.num_steps(); ++step) {
    if ((calendar.*happens)(step)) text += (text.empty() ? "" : " ") + std::to_string(step);
  }
  return text;
}

class CalendarTest : public testing::Test {
 protected:
  CalendarTest() {
    settings_.batch_size = 2;
    settings_.epochs = 2;
    settings_.lr = 1;
    settings_.lr_schedule = Schedule::constant;
    samples_.resize(7);  // 4 steps per epoch
    for (Sample& sample : samples_) sample = {{1, 2}, {kNoTarget, 2}};
  }
  Calendar calendar(bool has_evaluation = true) const {
    return Calendar(settings_, samples_, has_evaluation, model_, *world_);
  }
  static ModelConfig config() {
    ModelConfig config;
    find_known_model("bloom-560m", config);
    return config;
  }

  Settings settings_;
  std::vector<Sample> samples_;
  const std::unique_ptr<Device> device_ = make_counting_device();
  const Model model_{config(), *device_};
  const std::unique_ptr<Communicator> world_ = make_self_communicator();
};

TEST_F(CalendarTest, IntervalsEndWithEpochsStepsAndTheRun) {
  settings_.eval_strategy = Settings::Interval::epoch;
  settings_.save_strategy = Settings::Interval::steps;
  settings_.save_steps = 3;
  settings_.logging_steps = 3;
  const Calendar both = calendar();
  EXPECT_EQ(both.num_steps(), 8);
  EXPECT_EQ(steps_of(both, &Calendar::evaluates_after), "4 8");
  EXPECT_EQ(steps_of(both, &Calendar::saves_after), "3 6 8");
  EXPECT_EQ(steps_of(both, &Calendar::logs_after), "3 6");
  EXPECT_EQ(both.epochs_after(6), 1.5);
  EXPECT_EQ(steps_of(calendar(false), &Calendar::evaluates_after), "");
  settings_.save_strategy = Settings::Interval::no;
  settings_.max_steps = 6;
  const Calendar shorter = calendar();
  EXPECT_EQ(shorter.num_steps(), 6);
  EXPECT_EQ(steps_of(shorter, &Calendar::evaluates_after), "4 6");
  EXPECT_EQ(steps_of(shorter, &Calendar::saves_after), "");
}

TEST_F(CalendarTest, GivesTheRateOfTheScheduleAndTheBatchesOfAnEpoch) {
  settings_.lr_schedule = Schedule::linear;
  const Calendar plan = calendar();
  EXPECT_EQ(plan.learning_rate(0), 1);
  EXPECT_EQ(plan.learning_rate(6), 0.25);
  EXPECT_EQ(plan.batches_of_epoch(1).num_steps(), 4);
}

}  // namespace
}  // namespace tessera
