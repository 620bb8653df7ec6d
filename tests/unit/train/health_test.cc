#include "tessera/train/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tessera {
namespace {

using testing::HasSubstr;

class HealthTest : public testing::Test {
 protected:
  Health health() {
    return Health(settings_, 1000, console_,
                  {.begin_again = [](int64_t sound) { return "Begin again from " + std::to_string(sound); },
                   .log_skipped = [this](const Record& record) { log_.push_back(record); }});
  }
  static StepResult step(double loss, bool skipped = false) {
    StepResult result;
    result.loss_sum = loss;
    result.num_targets = 1;
    result.gradient_norm = skipped ? std::numeric_limits<double>::infinity() : 1;
    result.skipped = skipped;
    return result;
  }
  template <typename Work>
  static std::string end_of(const Work& work) {
    try {
      work();
    } catch (const RunError& error) {
      return error.what();
    }
    return "";
  }

  Settings settings_;
  std::string notes_;
  Console console_{{}, {{}, [this](std::string_view text) { notes_ += text; }, {}}};
  std::vector<Record> log_;
};

TEST_F(HealthTest, SkippedUpdatesAreLoggedAndEndTheRunIfThereAreTooMany) {
  settings_.max_skipped_updates = 2;
  Health health = this->health();
  health.watch(1, step(5), 1, 0);
  EXPECT_EQ(health.sound_checkpoint(), 0);
  health.watch(2, step(5, true), 1, 1);
  EXPECT_EQ(health.sound_checkpoint(), 0);  // no step has used the checkpoint of step 1
  EXPECT_TRUE(health.is_in_doubt());
  EXPECT_THAT(notes_, HasSubstr("step 2 skipped"));
  EXPECT_THAT(end_of([&] { health.watch(3, step(5, true), 1, 1); }),
              testing::AllOf(HasSubstr("2 updates in a row skipped"), HasSubstr("Begin again from 0")));
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(log_[1]["in_a_row"], 2);
}

TEST_F(HealthTest, AnUpdateEndsASeriesOfSkippedOnes) {
  settings_.max_skipped_updates = 2;
  Health health = this->health();
  for (int64_t i = 1; i <= 10; ++i) health.watch(i, step(5, i % 2 == 0), 1, i);
  EXPECT_EQ(health.num_skipped(), 5);
  EXPECT_NO_THROW(health.check_end(10, 5, std::nullopt));
  EXPECT_THAT(notes_, HasSubstr("the last update of the run was skipped"));
}

TEST_F(HealthTest, StepsWithoutTargetsAreNotedOnce) {
  Health health = this->health();
  for (int64_t i = 1; i <= 3; ++i) health.watch(i, StepResult{}, 1, -1);
  EXPECT_EQ(health.num_without_targets(), 3);
  EXPECT_THAT(notes_, HasSubstr("no token of step 1 has a loss"));
  EXPECT_THAT(notes_, testing::Not(HasSubstr("step 2")));
}

TEST_F(HealthTest, ARunWithoutAnUpdateFails) {
  settings_.max_skipped_updates = 0;
  Health health = this->health();
  health.watch(1, step(5, true), 1, -1);
  EXPECT_THAT(end_of([&] { health.check_end(1, 0, std::nullopt); }), HasSubstr("The model did not change"));
}

TEST_F(HealthTest, AHopelessLossEndsTheRunUnlessTheUserWantsItToContinue) {
  for (const bool stops : {true, false}) {
    settings_.stop_on_divergence = stops;
    Health health = this->health();
    const std::string end = end_of([&] {
      for (int64_t i = 1; i <= 100; ++i) health.watch(i, step(i < 20 ? 5 : 1e6), 1, 0);
    });
    EXPECT_EQ(!end.empty(), stops) << end;
    EXPECT_EQ(end.find("Begin again from 0") != std::string::npos, stops) << end;
    EXPECT_THAT(notes_, HasSubstr("training diverges"));
  }
}

// Only the evaluation after the last step sees what the last update did.
TEST_F(HealthTest, TheLastEvaluationCounts) {
  Health health = this->health();
  health.watch(1, step(5), 1, -1);
  EXPECT_NO_THROW(health.check_end(1, 1, 5.0));
  EXPECT_THAT(end_of([&] { health.check_end(1, 1, 7000.0); }), HasSubstr("the loss of the last evaluation is 7000"));
}

TEST_F(HealthTest, ContinuesFromACheckpoint) {
  settings_.precision = Settings::Precision::fp16;
  settings_.max_skipped_updates = 0;
  Health whole = this->health(), first = this->health(), second = this->health();
  const auto watch = [&](Health& health, int64_t from, int64_t to) {
    for (int64_t i = from; i <= to; ++i) health.watch(i, step(5 + 0.1 * static_cast<double>(i % 3), i % 4 == 0), 1, i);
  };
  watch(whole, 1, 12);
  watch(first, 1, 6);
  second.restore(first.state(), first.loss_scale_state());
  watch(second, 7, 12);
  EXPECT_EQ(second.loss_scale(), whole.loss_scale());
  EXPECT_NE(second.loss_scale(), this->health().loss_scale());
  EXPECT_EQ(second.num_skipped(), whole.num_skipped());
  EXPECT_EQ(second.state().losses, whole.state().losses);
  EXPECT_EQ(second.sound_checkpoint(), whole.sound_checkpoint());
}

}  // namespace
}  // namespace tessera
