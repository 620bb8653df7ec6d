#include "tessera/train/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tessera/base/read_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    std::string name = fs::temp_directory_path() / "tessera-recorder-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RecorderTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
  Settings settings_;
  std::string out_, err_;
  Console console_{{{}, [this](std::string_view text) { out_ += text; }, {}},
                   {{}, [this](std::string_view text) { err_ += text; }, {}}};
};

TEST_F(RecorderTest, LinesGoToStandardOutputUnlessASummaryIsPrintedThere) {
  Recorder(settings_, console_).say("a");
  settings_.json = true;
  Recorder(settings_, console_).say("b");
  EXPECT_EQ(out_, "a\n");
  EXPECT_EQ(err_, "b\n");
}

TEST_F(RecorderTest, RecordsGoToTheLogAndToTrackers) {
  settings_.output_dir = folder_;
  Recorder recorder(settings_, console_);
  recorder.append("train", 1, 0.5, {{"loss", 3}}, {}, 1);  // a rank without a log
  EXPECT_EQ(recorder.synced_size_bytes(), 0);
  recorder.log_to(MetricsLog::create(folder_ / MetricsLog::kFileName));
  TrackerOptions options;
  options.tensorboard = true;
  options.output_dir = folder_;
  recorder.start_trackers(options, 0);
  recorder.append("train", 2, 1, {{"loss", 2}}, {{"runtime_s", 7}}, 7);
  recorder.track_system(2, nullptr);
  const std::string log = read_file(folder_ / MetricsLog::kFileName, {});
  EXPECT_EQ(recorder.synced_size_bytes(), std::ssize(log));
  EXPECT_THAT(log, testing::AllOf(testing::HasSubstr("\"step\": 2"), testing::Not(testing::HasSubstr("\"step\": 1"))));
  recorder.finish_trackers(ExitCode::kDone, Record::object(), 8);
  EXPECT_TRUE(fs::exists(folder_ / "tensorboard"));
}

TEST_F(RecorderTest, TheLogOutlivesItsFolder) {
  Recorder recorder(settings_, console_);
  recorder.log_to(MetricsLog::create(folder_ / MetricsLog::kFileName));
  recorder.append("train", 1, 0.5, {{"loss", 3}}, {}, 1);
  const fs::path other = folder_ / "other";
  fs::create_directory(other);
  fs::remove(folder_ / MetricsLog::kFileName);
  recorder.keep_at(other);
  recorder.append("train", 2, 1, {{"loss", 2}}, {}, 1);
  const std::string log = read_file(other / MetricsLog::kFileName, {});
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2);
}

}  // namespace
}  // namespace tessera
