#include "tessera/log/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_log_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/metrics.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void write(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

  // Returns the records of a file. Skips a last line without a newline. A run leaves such a line if it is killed while
  // it writes.
  static std::vector<Record> records(const std::string& path) {
    std::vector<Record> records;
    std::istringstream text(read(path));
    for (std::string line; std::getline(text, line) && !text.eof();) records.push_back(record_from_json(line, path));
    return records;
  }

  template <typename ErrorType>
  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const ErrorType& error) {
      return error.what();
    }
    return "no such error";
  }

  // Writes the records of a run for steps `from` + 1 to `steps`. Runs with different values of `clock` write
  // different times.
  static void train(MetricsLog& log, int64_t from, int64_t steps, double clock) {
    for (int64_t step = from + 1; step <= steps; ++step) {
      const double x = static_cast<double>(step);
      log.append("train", step, x / 4, {{"loss", 5 / x}, {"learning_rate", 1e-5 * x}}, {{"step_ms", clock * x}});
      if (step % 4 == 0) log.append("eval", step, x / 4, {{"eval_loss", 6 / x}}, {{"eval_runtime", clock}});
    }
  }
  static std::string without_timing(const std::string& path) {
    std::string text;
    for (Record& record : records(path)) {
      record.erase("timing");
      text += to_json(record) + "\n";
    }
    return text;
  }

  std::string folder_, path_;
};

TEST_F(MetricsLogTest, WritesEachRecordImmediatelyAsOneObject) {
  write(path_, "earlier content\n");
  MetricsLog log = MetricsLog::create(path_);
  EXPECT_EQ(log.size_bytes(), 0);
  log.append("train", 10, 0.5, {{"loss", 4.895}, {"grad_norm", 81.47}}, {{"samples_per_second", 73.25}});
  const std::string first =
      R"({"schema": 1, "kind": "train", "step": 10, "epoch": 0.5, "loss": 4.895, "grad_norm": 81.47, )"
      R"("timing": {"samples_per_second": 73.25}})"
      "\n";
  EXPECT_EQ(read(path_), first);  // while the log is still open
  EXPECT_EQ(log.size_bytes(), static_cast<int64_t>(first.size()));
  log.append("eval", 20, 1, {{"eval_loss", 4.0}});
  EXPECT_EQ(read(path_), first + R"({"schema": 1, "kind": "eval", "step": 20, "epoch": 1.0, "eval_loss": 4.0})" + "\n");
  EXPECT_EQ(log.synced_size_bytes(), static_cast<int64_t>(read(path_).size()));
  EXPECT_EQ(records(path_).at(1),
            (Record{{"schema", 1}, {"kind", "eval"}, {"step", 20}, {"epoch", 1.0}, {"eval_loss", 4.0}}));
}

TEST_F(MetricsLogTest, ResumedRunLeavesTheSameRecordsAsAnUninterruptedOne) {
  MetricsLog complete = MetricsLog::create(path_);
  train(complete, 0, 12, 1.0);

  const std::string resumed_path = folder_ + "/resumed.jsonl";
  int64_t checkpoint_bytes = 0;
  {
    MetricsLog killed = MetricsLog::create(resumed_path);
    train(killed, 0, 6, 2.0);
    checkpoint_bytes = killed.synced_size_bytes();
    train(killed, 6, 9, 3.0);
  }
  write(folder_ + "/tail", read(resumed_path) + "{\"schema\": 1, \"ki");  // killed in the middle of a write
  std::filesystem::rename(folder_ + "/tail", resumed_path);
  EXPECT_EQ(records(resumed_path).size(), 9u + 2u);

  MetricsLog resumed = MetricsLog::resume(resumed_path, checkpoint_bytes);
  EXPECT_EQ(resumed.size_bytes(), checkpoint_bytes);
  train(resumed, 6, 12, 4.0);
  EXPECT_EQ(without_timing(resumed_path), without_timing(path_));
  EXPECT_NE(read(resumed_path), read(path_));
  EXPECT_EQ(without_timing(path_).find("timing"), std::string::npos);
}

TEST_F(MetricsLogTest, ResumesFromTheVeryBeginning) {
  write(path_, "{\"schema\": 1}\n");
  MetricsLog::resume(path_, 0).append("train", 1, 0, {});
  EXPECT_EQ(records(path_).size(), 1u);
}

TEST_F(MetricsLogTest, RefusesToResumeAFileThatIsNotTheCheckpoints) {
  const auto resume = [&](int64_t size_bytes) {
    return message_of<InputError>([&] { MetricsLog::resume(path_, size_bytes); });
  };
  EXPECT_THAT(resume(14), StartsWith(path_ + ": no such file. Put back the file"));
  write(path_, "{\"schema\": 1}\n{\"schema\": 1}\n");
  EXPECT_THAT(resume(29), StartsWith(path_ + ": it has 28 bytes, but the checkpoint recorded 29. Put back the file"));
  EXPECT_THAT(resume(-1), HasSubstr("it has 28 bytes, but the checkpoint recorded -1"));
  EXPECT_THAT(resume(15), StartsWith(path_ + ": no record ends at byte 15, where the checkpoint's last record ended."));
  EXPECT_EQ(read(path_).size(), 28u);  // the file is unchanged
}

TEST_F(MetricsLogTest, UnwritablePlacesAreRunErrors) {
  EXPECT_EQ(message_of<RunError>([&] { MetricsLog::create(folder_ + "/none/metrics.jsonl"); }),
            folder_ + "/none/metrics.jsonl: cannot open the file: No such file or directory. Create the folder first");
}

// The file is renamed, removed, or replaced by another file.
TEST_F(MetricsLogTest, OutlivesItsFile) {
  MetricsLog log = MetricsLog::create(path_);
  log.append("train", 1, 0.5, {{"loss", 1.0}});
  const std::string moved = path_ + "-moved";
  ASSERT_EQ(std::rename(path_.c_str(), moved.c_str()), 0);
  log.keep_at(moved);
  EXPECT_EQ(log.path(), moved);
  for (const bool is_replaced : {false, true}) {
    const std::string before = read(moved);
    ASSERT_EQ(std::remove(moved.c_str()), 0);
    if (is_replaced) std::ofstream(moved) << "a longer text than the records of the log";
    log.append("train", 2, 1.0, {{"loss", 0.5}});
    log.keep_at(moved);
    EXPECT_TRUE(read(moved).starts_with(before));
    EXPECT_EQ(records(moved).size(), is_replaced ? 3u : 2u);
  }
  std::remove(moved.c_str());
}

// A limit on the file size imitates a disk that fills up in the middle of a record.
TEST_F(MetricsLogTest, FullDiskKeepsThePreviousRecord) {
  MetricsLog log = MetricsLog::create(path_);
  log.append("train", 1, 0.5, {{"loss", 1.0}});
  const std::string before = read(path_);

  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = before.size() + 10, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string error = message_of<RunError>([&] { log.append("train", 2, 1.0, {{"loss", 0.5}}); });
  const std::string after_error = read(path_);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_EQ(error, path_ + ": cannot write the file: File too large. Free some space on the disk");
  EXPECT_EQ(after_error, before);
  log.append("train", 2, 1.0, {{"loss", 0.5}});  // with free space again, the log continues
  EXPECT_EQ(records(path_).size(), 2u);
}

}  // namespace
}  // namespace tessera
