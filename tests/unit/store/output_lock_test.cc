// One run at a time in an output folder.
#include "tessera/store/output_lock.h"

#include <sys/wait.h>

#include <csignal>
#include <optional>

#include "store_test_util.h"
#include "tessera/store/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const fs::path& folder) {
  return error_of<UsageError>([&] { OutputLock lock(folder); });
}

TEST(OutputLock, HoldsTheFolderUntilItEnds) {
  TemporaryFolder parent;
  const fs::path folder = parent / "runs/a";
  {
    OutputLock lock(folder);
    EXPECT_THAT(refusal(folder),
                AllOf(HasSubstr("in use by another run"), HasSubstr("process " + std::to_string(getpid()) + " on")));
    EXPECT_EQ(refusal(parent / "runs/b"), "");
  }
  EXPECT_EQ(refusal(folder), "");
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(OutputLock, AnotherProcessHoldsItUntilItsDeath) {
  TemporaryFolder parent;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    OutputLock lock(parent / "a");
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal(parent / "a"), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(refusal(parent / "a"), "");
  close(ready[0]);
  close(ready[1]);
}

TEST(OutputLock, NameOfALiveProcessCountsWhereLocksDoNot) {
  TemporaryFolder parent;
  auto holder = ProcessIdentity::self();
  put(parent / ".tessera-lock", holder.to_string());  // nobody holds a lock on it
  EXPECT_THAT(refusal(parent.path()), HasSubstr("in use by another run"));
  holder.start_time += 1;  // its number has gone to another process since
  put(parent / ".tessera-lock", holder.to_string());
  EXPECT_EQ(refusal(parent.path()), "");
  put(parent / ".tessera-lock", "garbage");
  EXPECT_EQ(refusal(parent.path()), "");
}

TEST(OutputLock, UnwritableFolderIsAnError) {
  TemporaryFolder parent;
  put(parent / "file", "");
  EXPECT_THAT(error_of<RunError>([&] { OutputLock lock(parent / "file/a"); }), HasSubstr("Check the path"));
  const bool is_root = geteuid() == 0;
  fs::create_directory(parent / "locked");
  fs::permissions(parent.path(), fs::perms(0755));
  fs::permissions(parent / "locked", fs::perms(0555));
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::string message = error_of<RunError>([&] { OutputLock lock(parent / "locked"); });
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(message, AllOf(HasSubstr("Permission denied"), HasSubstr("that you may write to")));
}

TEST(ProcessIdentity, TextGoesThereAndBack) {
  const ProcessIdentity identity{"node-17.cluster", 123, 456};
  EXPECT_EQ(ProcessIdentity::parse(identity.to_string()), identity);
  EXPECT_FALSE(identity.is_alive_here());
  EXPECT_TRUE(ProcessIdentity::self().is_alive_here());
  for (const char* text : {"", "-", "--", "a-b-c", "a-1-", "a--1", "a-0-1", "a-1-2x", "1-2"}) {
    EXPECT_FALSE(ProcessIdentity::parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace tessera
