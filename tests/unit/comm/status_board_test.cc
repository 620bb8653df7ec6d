#include "tessera/comm/status_board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {
namespace {

struct Board : testing::Test {
  std::unique_ptr<StatusBoard> launcher = StatusBoard::create(3);
  std::unique_ptr<StatusBoard> rank = StatusBoard::open(launcher->name(), 3);
};

TEST_F(Board, ShowsWhatOthersWrite) {
  EXPECT_EQ(launcher->pid_of(1), 0);
  rank->join(1);
  EXPECT_EQ(launcher->phase_of(1), "start");
  rank->enter_phase(1, "step");
  EXPECT_EQ(launcher->pid_of(1), getpid());
  EXPECT_EQ(launcher->phase_of(1), "step");
  rank->enter_phase(1, "a phase with a name that is far too long for its place");
  EXPECT_TRUE(launcher->phase_of(1).starts_with("a phase with a name"));
  EXPECT_FALSE(launcher->has_ended(1));
  rank->end(1, 0);
  EXPECT_TRUE(launcher->has_ended(1));
}

TEST_F(Board, ARankIsThereWhileItsProcessLives) {
  EXPECT_FALSE(launcher->is_there(1));
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    rank->join(1);
    char byte = 0;
    close(go[1]);
    static_cast<void>(!read(go[0], &byte, 1));
    _exit(0);
  }
  while (launcher->pid_of(1) == 0) usleep(1000);
  EXPECT_EQ(launcher->pid_of(1), child);
  EXPECT_TRUE(launcher->is_there(1));
  close(go[1]);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(launcher->is_lost(1));
  EXPECT_FALSE(launcher->is_there(1)) << "the process has ended, although its parent has not yet waited for it";
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(launcher->is_lost(1));
  rank->end(1, 0);
  EXPECT_FALSE(launcher->is_lost(1));
  EXPECT_FALSE(launcher->is_lost(2)) << "rank 2 has not joined";
  EXPECT_FALSE(launcher->is_there(1));
  close(go[0]);
}

TEST_F(Board, TheFirstFailureRecordsTheLostRanks) {
  const auto die_as = [this](int number) {
    const pid_t child = fork();
    if (child == 0) {
      rank->join(number);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  };
  rank->join(0);
  die_as(1);
  EXPECT_TRUE(launcher->found_lost().empty());
  rank->fail(0, ExitCode::kCommunication, "rank 1 is gone");
  EXPECT_EQ(launcher->found_lost(), std::vector<int>{1});
  die_as(2);  // as if the launcher had ended rank 2 because of the failure of rank 0
  rank->fail(0, ExitCode::kCommunication, "rank 2 is gone");
  EXPECT_EQ(launcher->found_lost(), std::vector<int>{1});
}

TEST_F(Board, TheExitCodeOfARunThatEndsInOrder) {
  for (const int number : {0, 1, 2}) {
    EXPECT_FALSE(launcher->exit_code());
    rank->join(number);
    rank->end(number, number == 1 ? 75 : 0);
  }
  EXPECT_EQ(launcher->exit_code(), 75);
  rank->fail(2, ExitCode::kRunFailed, "a late failure");
  EXPECT_FALSE(launcher->exit_code());
}

TEST_F(Board, WaitsAreShownWhileTheyLastAndWhenTheyFail) {
  rank->join(0);
  {
    const StatusBoard::Waiting waiting(rank.get(), 0, "all_gather of parameters of h.3");
    EXPECT_EQ(launcher->waiting(), "Rank 0 waited in all_gather of parameters of h.3.");
  }
  EXPECT_EQ(launcher->waiting(), "");
  for (const int number : {0, 2}) {
    rank->join(number);
    try {
      const StatusBoard::Waiting waiting(rank.get(), number, "all_gather of parameters of h.3");
      throw 1;
    } catch (int) {
    }
  }
  EXPECT_EQ(launcher->waiting(), "Ranks 0, 2 waited in all_gather of parameters of h.3.");
  rank->join(1);
  EXPECT_EQ(launcher->not_waiting(), "Rank 1 (process " + std::to_string(getpid()) + ") is running, in phase start.");
}

TEST_F(Board, ACommunicationFailureIsAConsequence) {
  EXPECT_FALSE(launcher->first_failure());
  rank->fail(0, ExitCode::kCommunication, "rank 0: waited");
  EXPECT_EQ(launcher->first_failure()->error, "rank 0: waited");
  rank->fail(2, ExitCode::kRunFailed, "rank 2: disk: is full");
  rank->fail(1, ExitCode::kBadInput, "rank 1: too late");
  const auto failure = launcher->first_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->code, ExitCode::kRunFailed);
  EXPECT_EQ(launcher->account(*failure), "rank 2: disk: is full. Rank 2 was in phase start.");
  EXPECT_TRUE(rank->claim_report());
  EXPECT_FALSE(launcher->claim_report());
}

TEST(StatusBoard, WorksWithoutSharedMemory) {
  // No process created a board with this name, so open() returns a local board.
  const auto board = StatusBoard::open("tessera-1-0-0123456789abcdef", 2);
  board->join(1);
  board->fail(1, ExitCode::kRunFailed, std::string(10'000, 'x'));
  EXPECT_EQ(board->first_failure()->rank, 1);
}

}  // namespace
}  // namespace tessera
