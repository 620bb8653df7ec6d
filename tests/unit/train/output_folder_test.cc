#include "tessera/train/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tessera/store/checkpoint.h"
#include "tessera/train/checkpoints.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename E, typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

// A run that has taken the folder "run" of a temporary folder.
class OutputFolderTest : public testing::Test {
 protected:
  OutputFolderTest() {
    std::string name = fs::temp_directory_path() / "tessera-output-folder-XXXXXX";
    base_ = mkdtemp(name.data());
    folder_.emplace(base_ / "run", 4, *world_, console_);
    folder_->handle_moves(
        {.settle = [this](const fs::path& to,
                          bool is_new) { events_.push_back((is_new ? "new " : "at ") + to.filename().string()); },
         .lose = [this] { events_.emplace_back("lost"); }});
    EXPECT_TRUE(folder_->take([] { return false; }));
  }
  ~OutputFolderTest() override {
    folder_.reset();
    std::error_code ignored;
    fs::remove_all(base_, ignored);
  }

  fs::path base_;
  std::string notes_;
  Console console_{{}, {{}, [this](std::string_view text) { notes_ += text; }, {}}};
  const std::unique_ptr<Communicator> world_ = make_self_communicator();
  std::vector<std::string> events_;
  std::optional<OutputFolder> folder_;
};

TEST_F(OutputFolderTest, HasOneOwner) {
  OutputFolder other(base_ / "run", 4, *world_, console_);
  EXPECT_THAT(error_of<UsageError>([&] { other.take([] { return false; }); }), HasSubstr("is in use by another run"));
  folder_->release();
  EXPECT_TRUE(other.take([] { return false; }));
}

TEST_F(OutputFolderTest, IsFollowedWhenItIsRenamed) {
  folder_->find(1);
  EXPECT_FALSE(folder_->has_moved());
  fs::rename(base_ / "run", base_ / "better name");
  folder_->find(2);
  EXPECT_TRUE(folder_->has_moved());
  EXPECT_EQ(folder_->path(), base_ / "better name");
  EXPECT_EQ(folder_->given(), base_ / "run");
  EXPECT_THAT(events_, ElementsAre("at run", "at better name"));
  EXPECT_THAT(notes_, HasSubstr("the output folder is now " + (base_ / "better name").string()));
  EXPECT_EQ(folder_->words_of_new_name(), " with --output-dir " + (base_ / "better name").string());
}

TEST_F(OutputFolderTest, IsCreatedAgainIfItWasRemoved) {
  fs::remove_all(base_ / "run");
  folder_->find(3);
  EXPECT_THAT(events_, ElementsAre("new run", "lost"));
  EXPECT_TRUE(fs::exists(base_ / "run"));
  EXPECT_THAT(notes_, HasSubstr("was removed during the run"));
}

TEST_F(OutputFolderTest, LeavesAnotherFolderWithItsNameAlone) {
  fs::remove_all(base_ / "run");
  fs::create_directory(base_ / "run");
  std::ofstream(base_ / "run" / "notes.txt") << "mine";
  EXPECT_THAT(error_of<RunError>([&] { folder_->find(3); }),
              testing::AllOf(HasSubstr("another folder has its name"), HasSubstr("step 3 is not saved")));
  EXPECT_TRUE(fs::exists(base_ / "run" / "notes.txt"));
}

TEST_F(OutputFolderTest, RepeatsAFailedWriteOnlyIfTheFolderMoved) {
  std::vector<fs::path> written;
  folder_->write(1, [&] {
    written.push_back(folder_->path());
    if (written.size() > 1) return;
    fs::rename(base_ / "run", base_ / "moved");
    throw RunError(base_ / "run", "is gone");
  });
  EXPECT_THAT(written, ElementsAre(base_ / "run", base_ / "moved"));
  folder_->write_checkpoint(1, [] {});  // from here on, the folder has not moved
  int tries = 0;
  EXPECT_THROW(folder_->write(2, [&] { ++tries, throw RunError("disk", "is full"); }), RunError);
  EXPECT_EQ(tries, 1);
}

TEST_F(OutputFolderTest, AnErrorOfSavingSaysHowToContinue) {
  const auto fail = [] { throw RunError("disk", "is full"); };
  EXPECT_THAT(
      error_of<RunError>([&] { folder_->saving("Step 3", fail); }),
      testing::AllOf(HasSubstr("disk: is full"), HasSubstr("Step 3 is not saved, and the run has no checkpoint")));
  EXPECT_THROW(folder_->saving("Step 3", [] { throw UsageError("--x", "is wrong", ""); }), UsageError);
}

// ---- Checkpoints

class CheckpointsTest : public OutputFolderTest {
 protected:
  CheckpointsTest() {
    for (int64_t step = 1; step <= 3; ++step) checkpoints_.save(step, part_);
  }
  std::vector<int64_t> steps() const { return checkpoint_steps(folder_->path()); }

  ThreadPool pool_{1};
  const WritePart part_ = [](CheckpointPart& part) { part.add_text("trainer_state.json", "{}"); };
  Checkpoints checkpoints_{*folder_, *world_, pool_};
};

TEST_F(CheckpointsTest, OldOnesAreRemovedWhenTheCallerSaysSo) {
  EXPECT_EQ(checkpoints_.last_step(), 3);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(checkpoints_.take_rotation());
  EXPECT_FALSE(checkpoints_.take_rotation());
  checkpoints_.rotate(3, {1, {1}, {}});
  EXPECT_THAT(steps(), ElementsAre(1, 3));
}

TEST_F(CheckpointsTest, FollowTheFolder) {
  fs::rename(base_ / "run", base_ / "moved");
  checkpoints_.save(4, part_);
  EXPECT_EQ(folder_->path(), base_ / "moved");
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
}

TEST_F(CheckpointsTest, TheLastOneIsWrittenAgainIfTheFolderMovedMeanwhile) {
  const auto device = make_cpu_device(pool_);
  Checkpoints later(*folder_, *world_, pool_, std::make_unique<BackgroundCheckpoint>(*device, *world_));
  EXPECT_TRUE(later.in_background());
  later.save(5, part_);
  later.wait();
  fs::remove_all(base_ / "run");
  later.finish(5, part_);
  EXPECT_FALSE(later.in_background());
  EXPECT_THAT(steps(), ElementsAre(5));
}

}  // namespace
}  // namespace tessera
