#include "tessera/launch/restarts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class RestartsTest : public ::testing::Test {
 protected:
  RestartsTest() { fs::create_directories(folder_); }
  ~RestartsTest() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::temp_directory_path() / ("restarts_test_" + std::to_string(getpid()));
};

TEST_F(RestartsTest, CompleteCheckpointsCountAsProgress) {
  const Checkpoints none = checkpoints_in(folder_);
  EXPECT_TRUE(none.empty());
  for (const char* name : {"checkpoint-", "checkpoint-7.damaged", "checkpoint-8.tmp-1-2", "checkpoint--3", "model"}) {
    fs::create_directory(folder_ / name);
  }
  EXPECT_FALSE(made_checkpoint(none, checkpoints_in(folder_)));
  fs::create_directory(folder_ / "checkpoint-40");
  const Checkpoints one = checkpoints_in(folder_);
  EXPECT_EQ(one.begin()->first, 40);
  EXPECT_TRUE(made_checkpoint(none, one));
  EXPECT_FALSE(made_checkpoint(one, one));
  EXPECT_FALSE(made_checkpoint(one, none)) << "a removed checkpoint is no progress";
  fs::last_write_time(folder_ / "checkpoint-40", one.begin()->second + std::chrono::seconds(1));
  EXPECT_TRUE(made_checkpoint(one, checkpoints_in(folder_))) << "the same step, written again, is progress";
  EXPECT_TRUE(checkpoints_in("").empty());
  EXPECT_TRUE(checkpoints_in(folder_ / "missing").empty());
}

TEST(Restarts, PausesGrow) {
  EXPECT_EQ(restart_pause_s(5, 1), 5);
  EXPECT_EQ(restart_pause_s(5, 2), 10);
  EXPECT_EQ(restart_pause_s(5, 4), 40);
  EXPECT_EQ(restart_pause_s(5, 7), 300);
  EXPECT_EQ(restart_pause_s(5, int64_t{1} << 40), 300);
  EXPECT_EQ(restart_pause_s(0, int64_t{1} << 40), 0);
  EXPECT_EQ(restart_pause_s(1000, 1), 1000);
  EXPECT_EQ(restart_pause_s(1000, 9), 1000);
}

TEST(Restarts, ContinueFromWhatTheRunHasSaved) {
  Settings settings;
  settings.resume = "none";
  EXPECT_EQ(restart_arguments({"train"}, settings, false), (std::vector<std::string>{"train"}));
  EXPECT_EQ(restart_arguments({"train"}, settings, true), (std::vector<std::string>{"train", "--resume", "auto"}));
  settings.resume = "auto";
  EXPECT_EQ(restart_arguments({"train"}, settings, true), (std::vector<std::string>{"train"}));
}

}  // namespace
}  // namespace tessera
