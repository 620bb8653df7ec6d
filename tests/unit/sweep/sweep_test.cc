#include "tessera/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tessera/store/folder_owner.h"
#include "tessera/store/output_lock.h"
#include "tessera/sweep/run_state.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sweep-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    resolved_.groups = kAllGroups;
    for (const Setting* setting : settings_of(kAllGroups)) resolved_.origins[setting->name] = {};
    resolved_.settings.model = "m";
    resolved_.settings.lr = 1e-4;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  void finish() {
    write("summary.json", "{}\n");
    write("metrics.jsonl", "{\"kind\": \"train\"}\n{\"kind\": \"summary\"}\n");
    write("resolved-config.toml", resolved_config_text(resolved_));
  }
  RunState state() const { return state_of_run(folder_, resolved_); }

  fs::path folder_;
  ResolvedSettings resolved_;
};

TEST_F(RunFolder, FinishedRunWithTheSameSettingsIsDone) {
  EXPECT_EQ(state_of_run(folder_ / "missing", resolved_), RunState::open);
  EXPECT_EQ(state(), RunState::open);
  finish();
  EXPECT_EQ(state(), RunState::done);
  resolved_.settings.owner_timeout = 7;  // this setting and the next two do not affect results
  resolved_.settings.output_dir = "x/../y";
  resolved_.settings.json = true;
  EXPECT_EQ(state(), RunState::done);
  resolved_.settings.lr = 2e-4;
  EXPECT_EQ(state(), RunState::open);
}

TEST_F(RunFolder, HalfWrittenFilesAreNotDone) {
  for (const char* metrics : {"", "{\"kind\": \"train\"}\n", "{\"kind\": \"summary\"}", "not JSON\n", "[]\n", "\n",
                              "{\"kind\": \"summary\"}\n{\"kind\": \"train\"}\n"}) {
    finish();
    write("metrics.jsonl", metrics);
    EXPECT_EQ(state(), RunState::open) << metrics;
  }
  for (const char* name : {"summary.json", "metrics.jsonl", "resolved-config.toml"}) {
    finish();
    fs::remove(folder_ / name);
    EXPECT_EQ(state(), RunState::open) << name;
  }
  finish();
  write("resolved-config.toml", "model = ");
  EXPECT_EQ(state(), RunState::open);
}

TEST_F(RunFolder, SettingsOfAnOlderVersion) {
  finish();
  // If resolved-config.toml does not contain a setting, its default counts. Unknown settings in the file are ignored.
  write("resolved-config.toml", "model = \"m\"\nlr = 1e-4\nno_such_setting = 3\n");
  EXPECT_EQ(state(), RunState::done);
  resolved_.settings.seed = 1;
  EXPECT_EQ(state(), RunState::open);
}

TEST_F(RunFolder, OwnerThatLives) {
  finish();
  write(OutputLock::kFileName, FolderOwner::self(100).to_text());
  EXPECT_EQ(state(), RunState::in_use);
  FolderOwner gone = FolderOwner::self(100);
  gone.process.start_time += 1;
  write(OutputLock::kFileName, gone.to_text());
  EXPECT_EQ(state(), RunState::done);
}

TEST_F(RunFolder, LastErrorOfALog) {
  write("log", "error: old\n$ tessera train\nreads\nerror: lr: must be\x01 positive\nlast words\n\n");
  EXPECT_EQ(last_error_in(folder_ / "log", 0), "lr: must be? positive");
  // Byte 57 is inside the last line that begins with "error: ", so last_error_in() does not see the beginning of it.
  EXPECT_EQ(last_error_in(folder_ / "log", 57), "last words");
  EXPECT_EQ(last_error_in(folder_ / "log", 500), "");
  EXPECT_EQ(last_error_in(folder_ / "missing", 0), "");
}

TEST(SweepProgress, TextFitsTheTerminal) {
  const SweepProgress progress{
      .num_runs = 12, .num_finished = 3, .num_failed = 1, .name = "strategy=full_shard", .run_s = 70, .left_s = 600};
  EXPECT_EQ(progress_text(progress, 100), "Sweep 3/12 (1 failed), strategy=full_shard 1:10, 10:00 left");
  EXPECT_EQ(progress_text(progress, 48), "Sweep 3/12 (1 failed), strategy 1:10, 10:00 left");
  EXPECT_EQ(progress_text(progress, 10), "Sweep 3/12");
  EXPECT_EQ(progress_text({.num_runs = 2, .num_finished = 2}, 80), "Sweep 2/2");
}

TEST(SweepProgress, TimeLeftFromFinishedRuns) {
  EXPECT_EQ(estimated_left_s({}, 3, 1), std::nullopt);
  EXPECT_EQ(estimated_left_s({10, 20}, 3, 5), 40);
  // The current run has already taken 99 s, more than the mean of 15 s. Only the two runs after it count: 2 · 15 s.
  EXPECT_EQ(estimated_left_s({10, 20}, 3, 99), 30);
  EXPECT_EQ(estimated_left_s({10, 20}, 0, 0), 0);
}

TEST(SweepReport, ShowsEachRunAndCompleteErrors) {
  const std::vector<SweepRun> runs{{.name = "a", .output_dir = "runs/a"}, {.name = "b", .output_dir = "runs/b"}};
  const std::vector<SweepResult> results{
      {.state = SweepState::done, .exit_code = 0, .seconds = 61},
      {.state = SweepState::failed, .exit_code = 3, .seconds = 1, .error = "data.json: is not JSON"}};
  const std::string text = sweep_report(runs, results, {});
  EXPECT_THAT(text, HasSubstr("| a   | done   |         0 | 1:01 | runs/a/train.log |"));
  EXPECT_THAT(text, HasSubstr("| b   | failed |         3 | 0:01 | runs/b/train.log |"));
  EXPECT_THAT(text, HasSubstr("\nb: data.json: is not JSON"));
}

}  // namespace
}  // namespace tessera
