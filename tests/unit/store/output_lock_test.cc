// Tests that only one run at a time can use an output folder.
#include "tessera/store/output_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "kill_at_syscall.h"
#include "store_test_util.h"
#include "tessera/base/random.h"
#include "tessera/store/process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kOwnerFile = ".tessera-lock";

std::string refusal(const fs::path& folder) {
  return error_of<UsageError>([&] { EXPECT_TRUE(OutputLock(folder).try_take()); });
}

// Sets the heartbeat (the modification time of the owner file) to `age_s` seconds before now.
void put_heartbeat(const fs::path& folder, double age_s) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const timespec times[] = {{0, UTIME_OMIT}, {now.tv_sec - static_cast<time_t>(age_s), now.tv_nsec}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder / kOwnerFile).c_str(), times, 0), 0);
}

void put_owner(const fs::path& folder, const FolderOwner& owner, double age_s = 0) {
  put(folder / kOwnerFile, owner.to_text());
  put_heartbeat(folder, age_s);
}

FolderOwner on_another_host(double stale_after_s) {
  FolderOwner owner = FolderOwner::self(stale_after_s);
  owner.process.host = "node-17";
  return owner;
}

// Repeats try_take() until the lock has taken the folder. Then returns true.
bool take(OutputLock& lock) {
  while (!lock.try_take()) lock.pause();
  return true;
}

TEST(OutputLock, HoldsTheFolderUntilItEnds) {
  TemporaryFolder parent;
  const fs::path folder = parent / "runs/a";
  {
    OutputLock lock(folder);
    EXPECT_TRUE(fs::is_empty(folder));
    EXPECT_TRUE(lock.try_take());
    EXPECT_FALSE(lock.predecessor());
    lock.check_held();
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
    if (lock.try_take() && write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(refusal(parent / "a"), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  {
    OutputLock lock(parent / "a");
    EXPECT_TRUE(lock.try_take());  // at the first attempt
    EXPECT_EQ(lock.predecessor().value().pid, child);
  }
  EXPECT_TRUE(fs::is_empty(parent / "a"));
  close(ready[0]);
  close(ready[1]);
}

TEST(OutputLock, AProcessOfThisHostIsIdentifiedExactly) {
  TemporaryFolder parent;
  FolderOwner owner = FolderOwner::self(180);
  put_owner(parent.path(), owner, 1e6);  // the heartbeat is days old, but the process is alive
  EXPECT_THAT(refusal(parent.path()), HasSubstr("in use by another run"));
  owner.process.start_time += 1;  // another process has the owner's id now
  put_owner(parent.path(), owner);
  EXPECT_EQ(refusal(parent.path()), "");
}

// Clocks that are a day ahead or behind, for heartbeats on other hosts.
constexpr double kAges_s[] = {0, 86400, -86400};

TEST(OutputLock, AnotherHostOwnsItUntilItIsSilent) {
  constexpr double kStaleAfterS = 0.4;
  FolderOwner another_boot = FolderOwner::self(kStaleAfterS), another_container = another_boot;
  another_boot.boot_id = "b";
  another_container.pid_namespace = "pid:[1]";
  for (const FolderOwner& owner : {on_another_host(kStaleAfterS), another_boot, another_container}) {
    for (const double age_s : kAges_s) {
      TemporaryFolder parent;
      put_owner(parent.path(), owner, age_s);
      OutputLock lock(parent.path());
      EXPECT_FALSE(lock.try_take());
      EXPECT_THAT(lock.waiting_for(),
                  AllOf(HasSubstr("belongs to " + owner.shown()), HasSubstr("Without one for 0.4 s")));
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_TRUE(take(lock));
      EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
      EXPECT_EQ(lock.predecessor(), owner.process);
      lock.check_held();
    }
  }
}

TEST(OutputLock, AHeartbeatOfAnotherHostRefuses) {
  TemporaryFolder parent;
  for (const double age_s : kAges_s) {
    for (const double next_age_s : {age_s - 5, age_s + 5, 1e9}) {  // the clock of the other host may also jump
      put_owner(parent.path(), on_another_host(0.4), age_s);
      OutputLock lock(parent.path());
      EXPECT_FALSE(lock.try_take());
      put_heartbeat(parent.path(), next_age_s);
      EXPECT_THAT(error_of<UsageError>([&] { lock.try_take(); }), HasSubstr("in use by another run"));
    }
  }
}

// If the watching process was stopped, the owner on a stopped file server had no time for a heartbeat either.
TEST(OwnerWatch, ALongPauseIsNotSilence) {
  const FolderOwner owner = on_another_host(0.4);
  const OwnerFile file{owner.to_text(), owner, 7};
  OwnerWatch watch;
  EXPECT_EQ(watch.look(file), OwnerWatch::Verdict::unknown);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(watch.look(file), OwnerWatch::Verdict::unknown);
}

TEST(OutputLock, ALockRenewsItsHeartbeat) {
  TemporaryFolder parent;
  OutputLock lock(parent.path(), 0.12);
  ASSERT_TRUE(lock.try_take());
  const auto heartbeat = [&] { return read_owner_file(parent / kOwnerFile).value().heartbeat_ns; };
  const int64_t first = heartbeat();
  while (heartbeat() == first) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(OutputLock, AnOwnerFileThatStaysIncompleteHasNoOwner) {
  const std::string text = FolderOwner::self(9).to_text();
  const auto without = [&](const char* key) {
    nlohmann::json json = nlohmann::json::parse(text);
    json.erase(key);
    return json.dump();
  };
  for (const auto& [incomplete, fault] : std::vector<std::pair<std::string, const char*>>{
           {"", "is empty"},
           {"garbage", "is not a complete JSON object"},
           {text.substr(0, 30), "is not a complete JSON object"},
           {"[1]", "is not a complete JSON object"},
           {"{}", "has no \"host\""},
           {without("process"), "has no \"process\""},
           {without("stale_after_s"), "has no \"stale_after_s\""},
           {FolderOwner::self(1e9).to_text(), "has a wrong \"stale_after_s\""},
           {R"({"host": "a", "process": -3})", "has a wrong \"process\""}}) {
    TemporaryFolder parent;
    put(parent / kOwnerFile, incomplete);
    OutputLock lock(parent.path(), 0.1);  // the shorter one of this limit and of kIncompleteAfterS counts
    EXPECT_FALSE(lock.try_take());
    EXPECT_THAT(lock.waiting_for(), HasSubstr(std::string("has an incomplete owner file: .tessera-lock ") + fault));
    EXPECT_THAT(lock.waiting_for(), HasSubstr("Without a change for 0.1 s, this run takes the folder"));
    EXPECT_TRUE(take(lock));
  }
  TemporaryFolder parent;
  put(parent / kOwnerFile, "");
  OutputLock lock(parent.path());
  EXPECT_FALSE(lock.try_take());
  EXPECT_THAT(lock.waiting_for(), HasSubstr("Without a change for 30 s"));
}

TEST(OutputLock, AnOwnerFileThatIsNoFileIsAnError) {
  TemporaryFolder parent;
  fs::create_directories(parent / "a" / kOwnerFile);
  fs::create_directories(parent / "b");
  fs::create_symlink("nowhere", parent / "b" / kOwnerFile);
  EXPECT_THAT(error_of<InputError>([&] { OutputLock(parent / "a").try_take(); }), HasSubstr("is a folder, not a file"));
  EXPECT_THAT(error_of<InputError>([&] { OutputLock(parent / "b").try_take(); }),
              HasSubstr(".tessera-lock: is a symbolic link to a file that does not exist. Remove the link"));
}

TEST(OutputLock, ARunThatLostTheFolderMayNotWrite) {
  TemporaryFolder parent;
  OutputLock lock(parent.path());
  ASSERT_TRUE(lock.try_take());
  put_owner(parent.path(), on_another_host(1));
  EXPECT_THAT(error_of<RunError>([&] { lock.check_held(); }), HasSubstr("taken over by another run (process"));
}

// A run takes the folder and is killed at one of its system calls. The next run then takes the folder immediately. The
// test repeats this for every system call of the run.
TEST(OutputLock, FollowsItsFolder) {
  TemporaryFolder parent;
  {
    OutputLock lock(parent / "a/b");
    ASSERT_TRUE(take(lock));
    EXPECT_EQ(lock.locate(), parent / "a/b");
    fs::rename(parent / "a", parent / "c");
    EXPECT_EQ(lock.locate(), parent / "c/b");
    fs::create_directories(parent / "a/b");  // another folder with the name
    EXPECT_EQ(lock.locate(), parent / "c/b");
    lock.check_held();
  }
  EXPECT_TRUE(fs::is_empty(parent / "c/b"));  // the owner file is removed
  OutputLock lock(parent / "c/b");
  ASSERT_TRUE(take(lock));
  fs::remove_all(parent / "c");
  EXPECT_EQ(lock.locate(), std::nullopt);
  lock.check_held();
}

TEST(OutputLock, SurvivesDeathAtAnySystemCall) {
  for (int n = 0;; ++n) {
    TemporaryFolder parent(memory_folder());
    FolderOwner gone = FolderOwner::self(180);
    gone.process.start_time += 1;
    put_owner(parent.path(), gone);
    const auto outcome = kill_at_syscall(n, [&] {
      for (int time = 0; time < 3; ++time) OutputLock(parent.path()).try_take();  // the first lock replaces the owner
    });
    if (outcome == KillOutcome::not_permitted) GTEST_SKIP() << "this process cannot trace a child";
    EXPECT_EQ(refusal(parent.path()), "") << n;
    // The killed run may leave temporary files. The trainer removes them with remove_stale_temporaries() when it has
    // the lock.
    for (const auto& entry : fs::directory_iterator(parent.path())) {
      EXPECT_THAT(entry.path().filename().string(), HasSubstr(".tmp-")) << n;
    }
    if (outcome == KillOutcome::finished) {
      EXPECT_TRUE(fs::is_empty(parent.path()));
      EXPECT_GT(n, 20);
      break;
    }
  }
}

// 2 to 7 locks try to take a folder at the same time. Its owner is gone, or it has no owner file. Exactly one of the
// locks takes the folder.
TEST(OutputLock, OneOfManyTakesOver) {
  for (uint64_t trial = 0; trial < 40; ++trial) {
    TemporaryFolder parent(memory_folder());
    FolderOwner owner = FolderOwner::self(180);
    owner.process.start_time += 1;
    const auto words = philox(7, trial, 0);
    if (words[0] % 4 != 0) put_owner(parent.path(), owner);
    if (words[0] % 4 == 1) put(parent / kOwnerFile, owner.to_text());
    int num_taken = 0, num_refused = 0;
    std::mutex mutex;
    std::vector<std::unique_ptr<OutputLock>> locks;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 2 + words[1] % 6; ++i) {
      threads.emplace_back([&] {
        auto lock = std::make_unique<OutputLock>(parent.path());
        bool taken = false;
        try {
          taken = take(*lock);
        } catch (const UsageError&) {
        }
        const std::lock_guard guard(mutex);
        ++(taken ? num_taken : num_refused);
        locks.push_back(std::move(lock));
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(num_taken, 1) << trial;
    EXPECT_EQ(num_refused, static_cast<int>(threads.size()) - 1);
    locks.clear();
    EXPECT_TRUE(fs::is_empty(parent.path())) << trial;
  }
}

TEST(OutputLock, UnwritableFolderIsAnError) {
  TemporaryFolder parent;
  put(parent / "file", "");
  EXPECT_THAT(error_of<RunError>([&] { OutputLock lock(parent / "file/a"); }), HasSubstr("Check the path"));
  // Permissions do not limit root. If root runs this test, it therefore tries to take the folder as another user.
  const bool is_root = geteuid() == 0;
  fs::create_directory(parent / "locked");
  fs::permissions(parent.path(), fs::perms(0755));
  fs::permissions(parent / "locked", fs::perms(0555));
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::string message = error_of<RunError>([&] { OutputLock(parent / "locked").try_take(); });
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(message, AllOf(HasSubstr("Permission denied"), HasSubstr("that you may write to")));
}

TEST(FolderOwner, TextRoundTrip) {
  FolderOwner owner;
  owner.process = {"node-17.cluster", 123, 456};
  owner.boot_id = "boot";
  owner.pid_namespace = "pid:[1]";
  owner.stale_after_s = 30;
  std::string fault;
  const FolderOwner back = FolderOwner::parse(owner.to_text(), fault).value();
  EXPECT_EQ(back.process, owner.process);
  EXPECT_EQ(back.boot_id, "boot");
  EXPECT_EQ(back.pid_namespace, "pid:[1]");
  EXPECT_EQ(back.stale_after_s, 30);
  EXPECT_NE(owner.to_text(), owner.to_text());  // two texts of the same owner differ
  EXPECT_FALSE(back.is_comparable_here());
  EXPECT_TRUE(FolderOwner::self(1).is_comparable_here());
  const std::string text = owner.to_text();
  for (size_t bytes = 0; bytes + 1 < text.size(); ++bytes)
    EXPECT_FALSE(FolderOwner::parse(text.substr(0, bytes), fault));
  for (const char* other : {"node-17-123-456", "{}", "[1]", "{\"host\": 1}"})
    EXPECT_FALSE(FolderOwner::parse(other, fault));
}

TEST(ProcessIdentity, TextRoundTrip) {
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
